// Command openapi writes the description of the query API over HTTP, OpenAPI 3.1, from
// query.proto: it reads a set of file descriptors with their comments from standard input.
//
// It knows the messages and their options. It must never know their meaning.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	// This program has the imported files.
	file, err := protodesc.NewFile(set.File[len(set.File)-1], protoregistry.GlobalFiles)
	if err != nil {
		return fmt.Errorf("read descriptors: %w", err)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode((&document{file}).describe())
}

// object is a part of the document.
type object map[string]any

// document describes a file of messages.
type document struct{ protoreflect.FileDescriptor }

// describe returns the whole document.
func (d *document) describe() object {
	paths := object{}
	methods := d.Services().ByName("QueryService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		paths["/api/v1/"+strings.ToLower(string(m.Name()))] = object{"get": d.question(m)}
	}
	for name, message := range map[string]protoreflect.Name{"export": "ExportRequest", "export/flows": "ExportFlowsRequest", "export/findings": "ExportFindingsRequest"} {
		paths["/api/v1/"+name] = object{"get": d.table(name, d.Messages().ByName(message))}
	}
	paths["/api/v1/bundle"] = object{"get": bundle()}
	for path, operation := range d.admin() {
		paths["/api/v1/admin/"+path] = operation
	}
	responses := object{}
	for code, r := range refusals {
		responses[code] = r.describe()
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "csigscope", "version": "1", "description": about, "license": object{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []any{object{"url": "/", "description": "The server that this document came from."}},
		"security": []any{object{"bearer": []any{}}, object{"certificate": []any{}}, object{}},
		"paths":    paths,
		"components": object{"schemas": d.schemas(), "responses": responses, "securitySchemes": object{
			"bearer":      object{"type": "http", "scheme": "bearer", "description": "A token of the server's file of clients."},
			"certificate": object{"type": "mutualTLS", "description": "A client certificate that the server's file of clients lists."},
		}},
	}
}

const about = `Room left and bottlenecks of each source and destination of a fabric, as CSIG tags and reflections report them. ` +
	`Requests without from and to are answered from the windows in memory (findings, and flows without windows, from the ` +
	`last stored hour); from and to ask the store for history. ` +
	`Answers from memory carry their revision as ETag; clients can wait for the next one (after, wait) or watch them as ` +
	`server-sent events. The service csigscope.query.v1.QueryService answers the same requests as calls (Connect, gRPC, ` +
	`gRPC-Web), beside grpc.health.v1 and server reflection. Units are in the names of fields, times are RFC 3339.`

// comment is the comment of a part, in one line.
func (d *document) comment(of protoreflect.Descriptor) string {
	return strings.Join(strings.Fields(d.SourceLocations().ByDescriptor(of).LeadingComments), " ")
}

// question describes a method as a question over HTTP.
func (d *document) question(m protoreflect.MethodDescriptor) object {
	name := strings.ToLower(string(m.Name()))
	parameters := d.parameters(m.Input())
	content := object{"application/json": object{"schema": reference(m.Output())}}
	headers := object{}
	out := object{"operationId": name, "summary": d.comment(m)}
	switch {
	case m.IsStreamingServer():
		content = object{"text/event-stream": object{"schema": object{"$ref": "#/components/schemas/" + nameOf(m.Output()) + "Event"}}}
		parameters = append(parameters, header("Last-Event-ID", "The same as after, as browsers send it.", "0000000000000007-42"))
		out["summary"], out["description"] = summaries[name], d.comment(m)+streamed
		if m.Input().Fields().ByName("encoding") != nil {
			out["description"] = d.comment(m) + streamed + framed
		}
	case waits(m.Input()):
		parameters = append(append(parameters, d.parameters(d.Messages().ByName("WaitRequest"))...), ifNoneMatch)
		headers["ETag"] = etag
	}
	responses := answers(content, headers)
	if m.Input().Fields().ByName("cursor") != nil {
		responses[gone] = object{"$ref": "#/components/responses/" + gone}
	}
	out["parameters"], out["responses"] = parameters, responses
	return out
}

// waits reports whether clients can wait for a later answer to a question: if it is answered from
// a number of windows in memory by default.
func waits(request protoreflect.MessageDescriptor) bool {
	f := request.Fields().ByName("windows")
	return f != nil && rest.OptionsOf(f).Default != ""
}

// summaries are the summaries of streams, whose comments are descriptions.
var summaries = map[string]string{"watch": "Cells as they change.", "changes": "Onsets, moves and ends of congestion, and silent producers."}

const (
	streamed = ` Server-sent events: the schema describes the lines id, event and data (JSON) of each. With Accept-Encoding: gzip ` +
		`they are compressed, and each is readable as soon as it is sent.`
	framed = ` With encoding=frames nothing is compressed, and an event may hold only the cells that differ from an earlier window, which base names.`
)

// table describes a table over HTTP.
func (d *document) table(name string, request protoreflect.MessageDescriptor) object {
	content, headers := object{}, object{}
	for _, t := range []string{"text/csv; charset=utf-8", "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"} {
		content[t] = object{"schema": object{"type": "string", "format": "binary"}}
	}
	row := map[string]protoreflect.Name{"export": "ExportedCell", "export/flows": "ExportedFlow", "export/findings": "Finding"}[name]
	content["application/x-ndjson"] = object{"schema": reference(d.Messages().ByName(row))}
	parameters := d.parameters(request)
	what := strings.TrimPrefix(name, "export/")
	if name == "export" {
		what = "cells"
		parameters = append(append(parameters, d.parameters(d.Messages().ByName("WaitRequest"))...), ifNoneMatch)
		headers["ETag"] = etag
	}
	return object{
		"operationId": strings.ReplaceAll(name, "/", "-"), "summary": strings.ToUpper(what[:1]) + what[1:] + " as a table.", "description": tables,
		"parameters": parameters, "responses": answers(content, headers),
	}
}

// admin describes the endpoints that require the role admin, by path below /api/v1/admin/.
func (d *document) admin() map[string]object {
	list := func(id, summary string, m protoreflect.Name) object {
		ok := object{"application/json": object{"schema": reference(d.Messages().ByName(m))}}
		return object{"get": object{"operationId": id, "summary": summary, "responses": answers(ok, nil)}}
	}
	end := func(id, summary, parameter, description, example string) object {
		responses := answers(nil, nil)
		delete(responses, "200")
		responses["204"] = object{"description": "Done."}
		p := header(parameter, description, example)
		p["in"], p["required"] = "path", true
		return object{"delete": object{"operationId": id, "summary": summary, "parameters": []any{p}, "responses": responses}}
	}
	return map[string]object{
		"clients":          list("admin-clients", "Clients and their share of the server's work; needs the role admin.", "ClientsResponse"),
		"requests":         list("admin-requests", "Requests that are being answered; needs the role admin.", "RequestsResponse"),
		"requests/{id}":    end("admin-end-request", "Ends a request, a wait or a watch; needs the role admin.", "id", "Id of the request, from the list of requests.", "42"),
		"producers/{name}": end("admin-forget-producer", "Makes a collector stop waiting for a producer; needs the role admin.", "name", "Name or hexadecimal id of the producer, / escaped as %2F.", "host7%2Feth0"),
	}
}

// bundle describes the part of the page's data that gives the ids in frames their names.
func bundle() object {
	parameter := func(name, description, example string) object {
		p := header(name, description, example)
		p["in"] = "query"
		return p
	}
	named := func(what, group string) object {
		field := func(description, example string) object {
			return object{"type": "string", "description": description, "examples": []any{example}}
		}
		return object{"type": "array", "description": "All " + what + " of the range.", "items": object{
			"type": "object", "description": "Its id in frames, and its name in all other answers.", "additionalProperties": true, "required": []string{"id", "name"},
			"properties": object{"id": field("Id in frames.", "17592186044417"), "name": field("Name.", group)},
		}}
	}
	schema := object{
		"type": "object", "additionalProperties": true, "required": []string{"groups", "locations"}, "properties": object{
			"groups": named("groups", "rack1"), "locations": named("locations", "leaf1:up1"),
		},
	}
	return object{
		"operationId": "bundle", "summary": "Names of the groups and locations in frames.",
		"description": "The page's data of a range of stored windows. Only the fields described here belong to the API: the page may change all others.",
		"parameters": []any{
			parameter("signal", "Signal of the cells in the answer; default all.", "min_abw"),
			parameter("from", "Start of the range; default everything stored.", "2026-01-20T09:00:00Z"),
			parameter("to", "End of the range.", "2026-01-20T09:00:10Z"),
		},
		"responses": answers(object{"application/json": object{"schema": schema}}, nil),
	}
}

const tables = `Rows come as they are read. Columns are the fields of the rows of ndjson: names of inner fields are joined by _, such as mean_bps, and lists are texts with spaces between their values. Headers say how many rows there may be ` +
	`(Csigscope-Row-Limit) and how long they may take (Csigscope-Time-Limit-S); trailers, and the key-value metadata of Parquet, how ` +
	`many there are (Csigscope-Rows), whether that is all (Csigscope-Complete: true or false) and, where it is not, which limit cut ` +
	`them off (Csigscope-Cut-By: rows or time). A transfer that breaks off without the trailers has failed.`

// parameters are the fields of a request.
func (d *document) parameters(request protoreflect.MessageDescriptor) []any {
	list := []any{}
	fields := request.Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		p := object{
			"name": string(f.Name()), "in": "query", "description": d.comment(f), "explode": f.IsList(), "schema": d.schema(f),
		}
		if rest.OptionsOf(f).Required {
			p["required"] = true
		}
		list = append(list, p)
	}
	return list
}

func header(name, description, example string) object {
	return object{
		"name": name, "in": "header", "description": description,
		"schema": object{"type": "string", "maxLength": 200, "description": description, "examples": []any{example}},
	}
}

var (
	ifNoneMatch = header("If-None-Match", "An ETag: the answer is 304 where nothing has changed.", `"0000000000000007-42"`)
	etag        = object{"description": "The revision of the answer.", "schema": object{"type": "string", "examples": []any{`W/"0000000000000007-42"`}}}
)

// answers are the possible responses to a question.
func answers(content, headers object) object {
	ok := object{"description": "OK", "content": content}
	out := object{"200": ok, "default": object{"$ref": "#/components/responses/default"}}
	if len(headers) > 0 {
		ok["headers"] = headers
		out["304"] = object{"description": "Nothing has changed.", "headers": headers}
	}
	for code := range refusals {
		if code != gone {
			out[code] = object{"$ref": "#/components/responses/" + code}
		}
	}
	return out
}

// gone is the status of a refused page, which only questions with a cursor have.
const gone = "410"

// refusal is a possible refusal of a question.
type refusal struct {
	description string
	retry       bool
}

var refusals = map[string]refusal{
	"default": {"The error, and how to correct it.", false},
	"400":     {"The parameters cannot be read, or hold a credential.", false},
	"401":     {"No valid credential: send a client certificate, or the header Authorization: Bearer TOKEN.", false},
	"403":     {"The role of the credential, or the host or web site of the request, does not permit this.", false},
	"404":     {"There is no such resource, nothing was observed that the question is about, nothing is stored, or the server has only history (give from and to) or only memory (leave them out).", false},
	"405":     {"Use a method in the header Allow.", false},
	gone:      {"The answer of the cursor is no longer kept: leave the cursor out to start over.", false},
	"413":     {"Requests have no body.", false},
	"414":     {"The parameters are longer than 4096 bytes: name fewer groups, or their parents.", false},
	"422":     {"A parameter is wrong or given twice: detail and errors name it and the expected values.", false},
	"429":     {"The client has used up its share of requests, watches or the store's time: try again after Retry-After.", true},
	"500":     {"The server could not answer: its log says why.", false},
	"503":     {"There are too many requests or watches at a time, or the store is slow or away: try again after Retry-After.", true},
	"504":     {"The answer took too long: take a shorter range.", false},
}

func (r refusal) describe() object {
	out := object{
		"description": r.description,
		"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
	}
	if r.retry {
		out["headers"] = object{"Retry-After": object{
			"description": "Seconds to wait, at least 1.", "schema": object{"type": "integer", "minimum": 1, "examples": []any{1}},
		}}
	}
	return out
}

// nameOf is the name of a message in JSON: without the suffix that calls add to answers.
func nameOf(m protoreflect.MessageDescriptor) string {
	return strings.TrimSuffix(string(m.Name()), "Response")
}

func reference(m protoreflect.MessageDescriptor) object {
	return object{"$ref": "#/components/schemas/" + nameOf(m)}
}

// schemas are the messages of answers and events.
func (d *document) schemas() object {
	out := object{}
	for i := range d.Messages().Len() {
		m := d.Messages().Get(i)
		switch name := string(m.Name()); {
		case m.Oneofs().ByName("event") != nil:
			d.events(m, out)
		case strings.HasSuffix(name, "Request"), name == "Rest", name == "About": // not in JSON
		default:
			properties, required := object{}, []string{}
			d.fields(m, properties, &required)
			s := object{"type": "object", "description": d.comment(m), "additionalProperties": false, "properties": properties}
			if len(required) > 0 {
				slices.Sort(required)
				s["required"] = required
			}
			out[nameOf(m)] = s
		}
	}
	for i := range d.Enums().Len() {
		e := d.Enums().Get(i)
		words := []string{}
		text := d.comment(e)
		for n := range e.Values().Len() {
			if v := e.Values().Get(n); v.Number() != 0 {
				words = append(words, wire.Word(v))
				text += " " + wire.Word(v) + ": " + d.comment(v)
			}
		}
		out[string(e.Name())] = object{"type": "string", "enum": words, "description": text}
	}
	return out
}

// events adds the server-sent events of a stream, and their union. Streams share events.
func (d *document) events(m protoreflect.MessageDescriptor, out object) {
	union, mapping := []any{}, object{}
	kinds := m.Oneofs().ByName("event").Fields()
	for i := range kinds.Len() {
		f := kinds.Get(i)
		event := string(f.Name())
		name := strings.ToUpper(event[:1]) + event[1:] + "StreamEvent"
		data := reference(f.Message())
		data["description"] = d.comment(f)
		out[name] = object{
			"type": "object", "description": d.comment(f), "additionalProperties": false, "required": []string{"data", "event"},
			"properties": object{
				"id":    object{"type": "string", "description": d.comment(m.Fields().ByName("id")), "examples": []any{"0000000000000007-42"}},
				"event": object{"type": "string", "const": event, "description": "Names the event.", "examples": []any{event}},
				"data":  data,
			},
		}
		ref := "#/components/schemas/" + name
		union, mapping[event] = append(union, object{"$ref": ref}), ref
	}
	out[nameOf(m)+"Event"] = object{
		"description": d.comment(m), "oneOf": union, "discriminator": object{"propertyName": "event", "mapping": mapping},
	}
}

// fields adds the fields of a message, and of the messages that are inline in it.
func (d *document) fields(m protoreflect.MessageDescriptor, properties object, required *[]string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		o := rest.OptionsOf(f)
		if o.Inline {
			d.fields(f.Message(), properties, required)
			continue
		}
		properties[string(f.Name())] = d.schema(f)
		if !f.HasPresence() && !o.OmitEmpty || o.Required {
			*required = append(*required, string(f.Name()))
		}
	}
}

// schema describes the values of a field.
func (d *document) schema(f protoreflect.FieldDescriptor) object {
	o := rest.OptionsOf(f)
	value := kindOf(f)
	if o.Minimum != nil && value["type"] != "string" {
		value["minimum"] = *o.Minimum
	}
	if o.Maximum != nil && value["type"] != "string" {
		value["maximum"] = *o.Maximum
	}
	if o.MaxLength > 0 {
		value["maxLength"] = o.MaxLength
	}
	words := rest.OneOf(f)
	switch {
	case f.Enum() != nil && len(o.OneOf) == 0:
		value = object{"$ref": "#/components/schemas/" + string(f.Enum().Name())}
	case len(words) > 0:
		value["enum"] = words
	}
	if o.Rows {
		if len(words) == 0 {
			value["type"] = []any{value["type"], "null"}
		}
		value = object{"type": "array", "items": value}
	}
	if f.IsList() {
		value = object{"type": "array", "items": value}
		if o.MaxItems > 0 {
			value["maxItems"] = o.MaxItems
		}
	}
	value["description"] = d.comment(f)
	if o.Default != "" {
		value["default"] = read(f, o.Default)
	}
	if o.Example != "" {
		example := read(f, o.Example)
		if _, whole := example.([]any); f.IsList() && !whole {
			example = []any{example}
		}
		value["examples"] = []any{example}
	}
	return value
}

// kindOf is the type of a value in JSON.
func kindOf(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return object{"type": "integer", "format": "int64", "minimum": 0}
	case protoreflect.DoubleKind:
		return object{"type": "number", "format": "double"}
	case protoreflect.BytesKind:
		return object{"type": "string", "contentEncoding": "base64"}
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Timestamp":
			return object{"type": "string", "format": "date-time"}
		case "google.protobuf.Duration":
			return object{"type": "string"}
		}
		return reference(f.Message())
	}
	return object{"type": "string"}
}

// read converts an example or a default to JSON: texts are written unchanged.
func read(f protoreflect.FieldDescriptor, text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return text
	}
	if _, list := v.([]any); !list && kindOf(f)["type"] == "string" {
		return text
	}
	return v
}
