// Package rpctest holds messages of calls against answers over HTTP.
//
// It knows how JSON of both differs in form. It must never be used outside of tests.
package rpctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Diff says where a message says something else than an answer in JSON: each field of the
// answer has to be in the message, and what is in the message alone has to be unset. Lines
// name fields; there are none where both are equal.
func Diff(answer []byte, m proto.Message) []string {
	told, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return []string{err.Error()}
	}
	var a, b any
	for to, text := range map[*any][]byte{&a: answer, &b: told} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(to); err != nil {
			return []string{fmt.Sprintf("decode %.200s: %v", text, err)}
		}
	}
	var found differences
	found.compare("", a, b)
	return found
}

type differences []string

func (d *differences) add(at string, a, b any) {
	*d = append(*d, fmt.Sprintf("%s: %v in the answer, %v in the message", at, a, b))
}

func (d *differences) compare(at string, a, b any) {
	switch a := a.(type) {
	case map[string]any:
		object, ok := b.(map[string]any)
		if !ok {
			d.add(at, a, b)
			return
		}
		d.objects(at, a, lifted(object))
	case []any:
		list, ok := b.([]any)
		a = flat(a)
		if !ok || len(a) != len(list) {
			d.add(at, a, b)
			return
		}
		for i := range a {
			d.compare(fmt.Sprintf("%s[%d]", at, i), a[i], list[i])
		}
	default:
		if !same(a, b) {
			d.add(at, a, b)
		}
	}
}

func (d *differences) objects(at string, a, b map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok && !unset(b[name]) {
			d.add(at+"."+name, "nothing", b[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[name]; !ok {
			d.add(at+"."+name, a[name], "nothing")
			continue
		}
		d.compare(at+"."+name, a[name], b[name])
	}
}

// lifted is an object with the fields of its about beside the others.
func lifted(object map[string]any) map[string]any {
	about, ok := object["about"].(map[string]any)
	if !ok {
		return object
	}
	object = maps.Clone(object)
	delete(object, "about")
	maps.Copy(object, about)
	return object
}

// flat is a matrix row by row.
func flat(list []any) (out []any) {
	for _, v := range list {
		row, ok := v.([]any)
		if !ok {
			return list
		}
		out = append(out, row...)
	}
	return out
}

func unset(v any) bool {
	switch v := v.(type) {
	case json.Number:
		return v == "0"
	case string:
		return v == "" || v == "0"
	case bool:
		return !v
	case []any:
		return len(v) == 0
	}
	return v == nil
}

// same compares values: 64-bit numbers are strings in JSON of messages, and what is null in a
// matrix is NaN or empty there.
func same(a, b any) bool {
	if a == nil {
		return b == "NaN" || b == ""
	}
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	if n, ok := a.(json.Number); ok {
		p, err1 := n.Float64()
		q, err2 := strconv.ParseFloat(y, 64)
		return err1 == nil && err2 == nil && p == q && (x == y || strings.ContainsAny(x+y, ".e"))
	}
	if t, err := time.Parse(time.RFC3339Nano, x); err == nil {
		u, err := time.Parse(time.RFC3339Nano, y)
		return err == nil && t.Equal(u)
	}
	return x == y
}
