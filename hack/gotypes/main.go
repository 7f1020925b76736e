// Prints what OpenAPI does not say about Kubernetes' types, as JSON.
//
//	go run .                        of every field: Go's name of its type, whether it is a pointer, left out when empty
//	go run . messages VERSION...    protobuf messages and their fields, of the kinds of these API versions
//	go run . vectors VERSION...     objects of these kinds, each as protobuf and as JSON, for tests
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type field struct {
	Go      string `json:"go"`
	Pointer bool   `json:"pointer,omitempty"`
	Omit    bool   `json:"omit,omitempty"`
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

type dump map[string]map[string]field

// definition is the name OpenAPI has for a type: k8s.io/api/core/v1.Pod is io.k8s.api.core.v1.Pod.
func definition(t reflect.Type) string {
	host, path, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

func (d dump) visit(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		d.visit(t.Elem())
	case reflect.Struct:
		// What reads its own JSON (times, quantities) has no fields on the wire.
		if reflect.PointerTo(t).Implements(unmarshaler) || d[definition(t)] != nil {
			return
		}
		d[definition(t)] = map[string]field{}
		d.fields(t, d[definition(t)])
	}
}

func (d dump) fields(t reflect.Type, into map[string]field) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			d.fields(embedded, into)
			continue
		}
		kind := f.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		into[name] = field{kind.String(), kind != f.Type, leftOut(f.Type, options)}
		d.visit(f.Type)
	}
}

// leftOut tells whether Go writes nothing for an empty value. A struct has no empty value, so omitempty does nothing.
func leftOut(t reflect.Type, options string) bool {
	all := strings.Split(options, ",")
	return slices.Contains(all, "omitzero") || slices.Contains(all, "omitempty") && t.Kind() != reflect.Struct
}

func main() {
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			panic(err)
		}
	}
	arguments := append(os.Args[1:], "types")
	var found any
	switch versions := os.Args[min(2, len(os.Args)):]; arguments[0] {
	case "messages":
		found = messages(versions)
	case "vectors":
		found = vectors(versions)
	default:
		found = types()
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

func types() dump {
	found := dump{}
	for kind, t := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal {
			found.visit(t)
		}
	}
	return found
}
