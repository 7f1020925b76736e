package main

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// sent gives, in order, the kinds that clients put into bodies: no lists, and no options but those of a deletion.
func sent(versions []string) []schema.GroupVersionKind {
	var found []schema.GroupVersionKind
	for kind, t := range scheme.Scheme.AllKnownTypes() {
		name := kind.Kind
		object := !strings.HasSuffix(name, "List") && !strings.HasSuffix(name, "Options")
		own := !strings.HasSuffix(t.PkgPath(), "/meta/v1")
		if slices.Contains(versions, kind.GroupVersion().String()) && (object && own || name == "DeleteOptions") {
			found = append(found, kind)
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return found
}

func atoi(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return number
}

func sorted(text string) string {
	letters := strings.Split(text, "")
	slices.Sort(letters)
	return strings.Join(letters, "")
}
