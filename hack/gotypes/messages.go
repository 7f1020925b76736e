package main

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// member is one field of a message: number, name in JSON, type, flags.
//
// The type is string, bool, int32, int64, float64, bytes (base64 in JSON), raw (bytes that never are in JSON), or a
// message. The flags are letters: l list, m map with text as keys, i inline (its fields are the message's own in
// JSON), p pointer (absent unless set), o left out when empty, z left out when zero.
type member [4]any

// registry is all that a decoder needs. Kinds are by API version; those of "" are in every version.
type registry struct {
	Kinds    map[string]map[string]string `json:"kinds"`
	Messages map[string][]member          `json:"messages"`
}

// Types that have a wire form of their own, and the struct that has its tags.
var wireForm = map[reflect.Type]reflect.Type{
	reflect.TypeFor[meta.Time]():         reflect.TypeFor[meta.Timestamp](),
	reflect.TypeFor[meta.MicroTime]():    reflect.TypeFor[meta.Timestamp](),
	reflect.TypeFor[resource.Quantity](): reflect.TypeFor[quantity](),
}

type quantity struct {
	Text string `protobuf:"bytes,1,opt,name=string"`
}

var marshaler = reflect.TypeFor[interface{ Marshal() ([]byte, error) }]()

// messages describes the kinds of the versions that clients send, and all that they are made of.
func messages(versions []string) registry {
	found := registry{map[string]map[string]string{}, map[string][]member{}}
	for _, kind := range sent(versions) {
		t, version := scheme.Scheme.AllKnownTypes()[kind], kind.GroupVersion().String()
		if t == reflect.TypeFor[meta.DeleteOptions]() {
			version = ""
		}
		if found.Kinds[version] == nil {
			found.Kinds[version] = map[string]string{}
		}
		found.Kinds[version][kind.Kind] = definition(t)
		found.message(t)
	}
	found.message(reflect.TypeFor[runtime.Unknown]())
	return found
}

func (r registry) message(t reflect.Type) {
	if _, known := r.Messages[definition(t)]; known {
		return
	}
	r.Messages[definition(t)] = nil
	shape := t
	if other := wireForm[t]; other != nil {
		shape = other
	}
	members := []member{}
	if shape.Kind() == reflect.Slice { // a list that is a message, so that no list and an empty one differ
		members = append(members, member{1, "items", r.typeName(shape.Elem(), "items"), "l"})
	} else {
		for i := range shape.NumField() {
			members = append(members, r.member(shape.Field(i))...)
		}
	}
	r.Messages[definition(t)] = members
}

// member has no or one element.
func (r registry) member(f reflect.StructField) []member {
	number, name := protobufTag(f.Tag.Get("protobuf"))
	if number == "" || number == "-" {
		return nil
	}
	json, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	kind, flags := f.Type, ""
	switch {
	case f.Anonymous && json == "":
		flags += "i"
	case json != "" && json != "-":
		name = json
	}
	if kind.Kind() == reflect.Pointer {
		kind, flags = kind.Elem(), flags+"p"
	}
	switch {
	case isMessage(kind) || isBytes(kind):
	case kind.Kind() == reflect.Slice:
		kind, flags = kind.Elem(), flags+"l"
	case kind.Kind() == reflect.Map && kind.Key().Kind() == reflect.String:
		kind, flags = kind.Elem(), flags+"m"
	}
	if flags == "ip" || flags == "pl" || flags == "pm" {
		panic("unexpected pointer: " + f.Name)
	}
	for option, flag := range map[string]string{"omitempty": "o", "omitzero": "z"} {
		if slices.Contains(strings.Split(options, ","), option) {
			flags += flag
		}
	}
	return []member{{atoi(number), name, r.typeName(kind, json), sorted(flags)}}
}

// typeName also describes the message, if it is one. The wire type in a tag is not used: some say bytes for numbers.
func (r registry) typeName(t reflect.Type, json string) string {
	switch {
	case isMessage(t):
		r.message(t)
		return definition(t)
	case isBytes(t) && (json == "" || json == "-"):
		return "raw"
	case isBytes(t):
		return "bytes"
	}
	switch kind := t.Kind(); kind {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		return kind.String()
	}
	panic("no wire form known: " + t.String())
}

func isMessage(t reflect.Type) bool { return reflect.PointerTo(t).Implements(marshaler) }

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

func protobufTag(tag string) (number, name string) {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return "", ""
	}
	for _, part := range parts {
		if after, found := strings.CutPrefix(part, "name="); found {
			name = after
		}
	}
	return parts[1], name
}
