package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/querytest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// schema is the part of JSON Schema that the document uses. Other keywords are errors.
type schema struct {
	Ref             string             `json:"$ref"`
	Type            any                `json:"type"` // a string, or several
	Properties      map[string]*schema `json:"properties"`
	Required        []string           `json:"required"`
	Additional      *bool              `json:"additionalProperties"`
	Items           *schema            `json:"items"`
	Enum            []any              `json:"enum"`
	Minimum         *float64           `json:"minimum"`
	Maximum         *float64           `json:"maximum"`
	MaxItems        *int               `json:"maxItems"`
	MaxLength       *int               `json:"maxLength"`
	Format          string             `json:"format"`
	ContentEncoding string             `json:"contentEncoding"`
	Default         any                `json:"default"`
	Examples        []any              `json:"examples"`
	Description     string             `json:"description"`
	Const           any                `json:"const"`
	OneOf           []*schema          `json:"oneOf"`
	Discriminator   any                `json:"discriminator"`
}

type parameter struct {
	Name, In, Description string
	Example               any
	Required, Explode     bool
	Style                 string
	Schema                *schema
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Headers     map[string]any
	Content     map[string]struct{ Schema *schema }
}

// document is the API's OpenAPI document.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		Parameters []parameter
		Responses  map[string]response
	}
	Servers    []any
	Security   []any
	Components struct {
		Schemas         map[string]*schema
		Responses       map[string]response
		SecuritySchemes map[string]any
	}
}

func (s *served) document(t *testing.T) *document {
	t.Helper()
	var raw struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	var d document
	text := s.get(t, "/openapi.json").Body.Bytes()
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	for _, methods := range d.Paths {
		for _, m := range methods {
			for code, r := range m.Responses {
				if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
					m.Responses[code] = d.Components.Responses[name]
				}
			}
		}
	}
	for name, text := range raw.Components.Schemas {
		strict := json.NewDecoder(strings.NewReader(string(text)))
		strict.DisallowUnknownFields()
		if err := strict.Decode(new(schema)); err != nil {
			t.Errorf("schema %s: %v", name, err)
		}
	}
	return &d
}

// check validates a value by a schema, and returns the errors.
func (d *document) check(s *schema, v any, at string) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	if s.Ref != "" {
		return d.check(d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")], v, at)
	}
	types, ok := s.Type.([]any)
	if !ok && s.Type != nil {
		types = []any{s.Type}
	}
	if kind := kindOf(v); len(types) > 0 && !slices.Contains(types, any(kind)) && (kind != "integer" || !slices.Contains(types, any("number"))) {
		say("is a %s, expected %v", kind, types)
		return wrong
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		say("is %v, expected one of %v", v, s.Enum)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				say("has no %s", name)
			}
		}
		for name, value := range v {
			if p := s.Properties[name]; p != nil {
				wrong = append(wrong, d.check(p, value, at+"."+name)...)
			} else if s.Additional == nil || !*s.Additional {
				say("has %s, which is not described", name)
			}
		}
	case []any:
		if s.MaxItems != nil && len(v) > *s.MaxItems {
			say("has %d items", len(v))
		}
		for i, item := range v {
			wrong = append(wrong, d.check(s.Items, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case float64:
		if s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			say("is %g", v)
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); s.Format == "date-time" && err != nil {
			say("is no time: %q", v)
		}
		if s.MaxLength != nil && len(v) > *s.MaxLength {
			say("has %d bytes", len(v))
		}
	}
	return wrong
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// TestDocumentSpeaks: every part has a description and a valid example.
func TestDocumentSpeaks(t *testing.T) {
	s := newServed(t, 4, nil)
	d := s.document(t)
	fields := 0
	for name, object := range d.Components.Schemas {
		for field, p := range object.Properties {
			fields++
			nested := p.Ref != "" || p.Items != nil && p.Items.Ref != "" || p.Type == nil
			if p.Description == "" || !nested && len(p.Examples) == 0 {
				t.Errorf("%s.%s: description %q, examples %v", name, field, p.Description, p.Examples)
			}
			for _, e := range p.Examples {
				for _, w := range d.check(p, e, name+"."+field) {
					t.Errorf("example: %s", w)
				}
			}
		}
	}
	parameters := 0
	for path, methods := range d.Paths {
		method := methods["get"]
		done := "200"
		if ends, ok := methods["delete"]; ok {
			method, done = ends, "204"
		}
		for _, p := range method.Parameters {
			parameters++
			if p.Description == "" || p.Schema.Examples == nil && p.Example == nil {
				t.Errorf("%s: parameter %s: description %q, without an example", path, p.Name, p.Description)
			}
			for _, e := range append(p.Schema.Examples, p.Schema.Default, p.Example) {
				if e == nil {
					continue
				}
				for _, w := range d.check(p.Schema, e, path+" "+p.Name) {
					t.Errorf("example: %s", w)
				}
			}
		}
		for _, code := range []string{done, "400", "401", "403", "404", "405", "413", "414", "422", "429", "500", "503", "504"} {
			r, ok := method.Responses[code]
			if _, retry := r.Headers["Retry-After"]; !ok || r.Description == "" || retry != (code == "429" || code == "503") {
				t.Errorf("%s: answers with %s: %+v", path, code, r)
			}
		}
	}
	if fields < 150 || parameters < 100 {
		t.Errorf("%d fields and %d parameters", fields, parameters)
	}
}

// TestDocumentNamesKinds: examples of kinds of findings are valid, in answers and questions.
func TestDocumentNamesKinds(t *testing.T) {
	d := newServed(t, 4, nil).document(t)
	shown := slices.Clone(d.Components.Schemas["Finding"].Properties["kind"].Examples)
	for _, p := range d.Paths["/api/v1/findings"]["get"].Parameters {
		if p.Name == "kind" {
			for _, e := range append(p.Schema.Examples, p.Example) {
				list, _ := e.([]any)
				shown = append(shown, list...)
			}
		}
	}
	var kinds []any
	for k := range finding.Kind(finding.NumKinds) {
		kinds = append(kinds, k.String())
	}
	for _, name := range shown {
		if !slices.Contains(kinds, name) {
			t.Errorf("%v is shown as a kind, expected one of %v", name, kinds)
		}
	}
	if len(shown) < 2 {
		t.Errorf("%d kinds are shown: %v", len(shown), shown)
	}
}

// TestAnswersAreAsDescribed validates answers, events and refusals by the document.
func TestAnswersAreAsDescribed(t *testing.T) {
	past := querytest.Fabric(3, 4)
	past.FlowRows, past.FindingRows = querytest.Flows(past, 5), querytest.Findings(past, 5)
	s := newServed(t, 9, func(c *api.Config) { c.Reader = past })
	d := s.document(t)
	const old = "from=2026-01-20T09:00:00Z&to=2026-01-20T09:00:04Z"
	ask := func(target string) {
		t.Helper()
		w := s.get(t, "/api/v1/"+target)
		path, _, _ := strings.Cut(target, "?")
		answers := d.Paths["/api/v1/"+path]["get"].Responses
		kind := w.Header().Get("Content-Type")
		content, ok := answers[fmt.Sprint(w.Code)].Content[kind]
		if !ok {
			t.Errorf("%s: %d of type %s is not described: %v", target, w.Code, kind, slices.Sorted(maps.Keys(answers)))
			return
		}
		var v any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		for _, wrong := range d.check(content.Schema, v, target) {
			t.Error(wrong)
		}
	}
	targets := []string{
		"verdict", "verdict?windows=2&top=1", "verdict?" + old, "verdict?top=0",
		"cells?signal=min_abw", "cells?signal=max_delay&limit=2", "cells?src=rack1&dst=rack1", "cells?" + old, "matrix", "matrix?" + old, "matrix?level=stage&signal=max_delay",
		"path?src=rack1&dst=rack2", "path?src=rack1&dst=rack2&" + old, "locations", "locations?" + old, "timeline", "timeline?src=rack1&dst=rack2", "timeline?" + old, "flows?" + old, "flows?windows=3", "links", "links?" + old, "links?state=no_data", "topology", "topology?src=rack1&dst=rack2", "flows?signal=max_delay&" + old,
		"findings?" + old, "findings?kind=nothing&" + old, "fabric", "health", "bundle?signal=min_abw", "bundle?from=x", "cells?limit=0", "cells?src=rack99", "cells?src=%zz", "cells?src=" + strings.Repeat("a", 5000),
	}
	for _, target := range targets {
		ask(target) // before any window
	}
	s.window(t, 0)
	s.window(t, 1)
	for _, target := range targets {
		ask(target)
	}
	cursor := read[wire.CellsResponse](t, s.get(t, "/api/v1/cells?limit=1")).NextCursor
	s = newServed(t, 4, func(c *api.Config) { c.Reader = &querytest.Memory{} })
	for _, target := range append(targets, "cells?limit=1&cursor="+cursor) { // of a revision that this server lacks
		ask(target) // with an empty store
	}
}

// plain parses the data of an event as JSON.
func plain(t *testing.T, e event, name string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.data), &v); err != nil || e.name != name {
		t.Errorf("event %s, want %s: %v", e.name, name, err)
	}
	return v
}

// TestEventsAreAsDescribed does the same for events of watches.
func TestEventsAreAsDescribed(t *testing.T) {
	s := newServed(t, 9, nil)
	s.window(t, 0)
	d := s.document(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	const cells = "/api/v1/watch?signal=min_abw&heartbeat=1s"
	fresh, frames, behind := open(t, server.URL+cells), open(t, server.URL+cells+"&encoding=frames"), open(t, server.URL+cells+"&after=0000000000000001-3")
	next := func(from *subscription, name, object string) {
		t.Helper()
		e := from.next(t)
		for _, wrong := range d.check(d.Components.Schemas[object], plain(t, e, name), name) {
			t.Error(wrong)
		}
	}
	next(behind, "gap", "Gap")
	for _, w := range []*subscription{fresh, frames, behind} {
		next(w, "snapshot", "Cells")
		next(w, "synced", "Synced")
		next(w, "heartbeat", "Heartbeat")
	}
	changed := open(t, server.URL+"/api/v1/changes?signal=min_abw&heartbeat=1s")
	next(changed, "initial", "ChangeSet")
	next(changed, "synced", "Synced")
	next(changed, "heartbeat", "Heartbeat")
	// Another heartbeat may come before the window does.
	s.window(t, 1)
	for _, w := range []*subscription{fresh, frames} {
		e := w.next(t)
		for e.name == "heartbeat" {
			e = w.next(t)
		}
		for _, wrong := range d.check(d.Components.Schemas["WindowEvent"], plain(t, e, "window"), "window") {
			t.Error(wrong)
		}
	}
}
