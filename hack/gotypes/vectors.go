package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// vector is one object as a client sends it, and as Go writes it in JSON after reading that.
type vector struct {
	Name     string          `json:"name"`
	Protobuf []byte          `json:"protobuf"`
	JSON     json.RawMessage `json:"json"`
}

//go:embed samples.yaml
var samples string

// vectors has of every kind an object with every field set, one whose every pointer, list and map holds only
// empty values, and one with nothing; then the samples.
func vectors(versions []string) []vector {
	var found []vector
	for _, kind := range sent(versions) {
		if kind.Kind == "DeleteOptions" && kind.Group != "" {
			continue
		}
		for _, fill := range []filler{{"full", 2}, {"hollow", 1}, {"empty", 0}} {
			object := reflect.New(scheme.Scheme.AllKnownTypes()[kind])
			counter := 0
			fill.fill(object.Elem(), map[reflect.Type]int{}, &counter)
			typed := object.Interface().(runtime.Object)
			typed.GetObjectKind().SetGroupVersionKind(kind)
			name := fmt.Sprintf("%s %s %s", fill.name, kind.GroupVersion(), kind.Kind)
			found = append(found, encoded(name, typed))
		}
	}
	for _, sample := range strings.Split(samples, "\n---\n") {
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(sample), nil, nil)
		must(err)
		object.GetObjectKind().SetGroupVersionKind(*kind)
		found = append(found, encoded(fmt.Sprintf("sample %s %s", kind.GroupVersion(), kind.Kind), object))
	}
	return found
}

func encoded(name string, object runtime.Object) vector {
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var raw bytes.Buffer
	must(serializer.Encode(object, &raw))
	read, _, err := serializer.Decode(raw.Bytes(), nil, nil)
	must(err)
	text, err := json.Marshal(read)
	must(err)
	return vector{name, raw.Bytes(), text}
}

// filler sets nothing (level 0), containers with empty content (1), or everything (2).
type filler struct {
	name  string
	level int
}

// fill sets a value. Types that contain themselves are entered twice.
func (f filler) fill(v reflect.Value, inside map[reflect.Type]int, counter *int) {
	*counter++
	if f.level == 0 || f.level == 2 && f.special(v, *counter) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if inside[v.Type().Elem()] < 2 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), inside, counter)
		}
	case reflect.Slice:
		if inside[v.Type().Elem()] < 2 && !isBytes(v.Type()) {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			f.fill(v.Index(0), inside, counter)
		}
	case reflect.Map:
		if inside[v.Type().Elem()] < 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, inside, counter)
			f.fill(value, inside, counter)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		inside[v.Type()]++
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type().Field(i).Tag.Get("protobuf") != "" {
				f.fill(v.Field(i), inside, counter)
			}
		}
		inside[v.Type()]--
	}
}

// special sets what is no container; it gives false for containers.
func (f filler) special(v reflect.Value, n int) bool {
	moment := time.Unix(1700000000+int64(n), 123456789)
	text := fmt.Appendf(nil, `{"n":%d}`, n)
	switch field := v.Addr().Interface().(type) {
	case *meta.Time:
		field.Time = moment
	case *meta.MicroTime:
		field.Time = moment
	case *resource.Quantity:
		*field = *resource.NewMilliQuantity(int64(n), resource.DecimalSI)
	case *intstr.IntOrString:
		*field = intstr.Parse([]string{"25%", fmt.Sprint(n)}[n%2])
	case *runtime.RawExtension:
		field.Raw = text
	case *apiextensions.JSON:
		field.Raw = text
	case *meta.FieldsV1:
		field.Raw = text
	default:
		return scalar(v, n)
	}
	return true
}

func scalar(v reflect.Value, n int) bool {
	switch {
	case isBytes(v.Type()):
		v.SetBytes([]byte{byte(n), 0, 255})
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint("t", n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Int32 || v.Kind() == reflect.Int64:
		v.SetInt(int64(n) * int64(1-n%3)) // also negative ones and zero
	case v.Kind() == reflect.Float64:
		v.SetFloat(float64(n) / 4)
	default:
		return false
	}
	return true
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
