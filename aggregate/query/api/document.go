package api

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query/model"
)

// refusals are what any question may be answered with instead.
var refusals = map[int]string{
	http.StatusBadRequest:            "The parameters cannot be read, or one is given twice",
	http.StatusUnauthorized:          "No valid credential: show a client certificate, or the header Authorization: Bearer TOKEN",
	http.StatusForbidden:             "The credential's role, or the web site that asks, may not",
	http.StatusNotFound:              "Nothing is stored, or there is no such resource",
	http.StatusMethodNotAllowed:      "Questions are asked by GET",
	http.StatusRequestEntityTooLarge: "Questions have no body",
	http.StatusRequestURITooLong:     "The parameters are longer than 4096 bytes: name fewer groups, or their parents",
	http.StatusUnprocessableEntity:   "A parameter is wrong: detail and errors say which, and what was expected",
	http.StatusTooManyRequests:       "The asker has used up its share of requests, watches or the store's time: come again after Retry-After",
	http.StatusInternalServerError:   "The server could not answer: its log says why",
	http.StatusServiceUnavailable:    "There are too many requests or watches at a time, or the store is slow or away: come again after Retry-After",
	http.StatusGatewayTimeout:        "The answer took too long: take a shorter range",
}

// responses describe what an endpoint answers.
func responses(h huma.API, contentType string, sample any) map[string]*huma.Response {
	schemas := h.OpenAPI().Components.Schemas
	problem := schemas.Schema(reflect.TypeFor[model.Problem](), true, "")
	refused := map[string]*huma.MediaType{"application/problem+json": {Schema: problem}}
	all := map[string]*huma.Response{
		"default": {Description: "What is wrong, and what to change", Content: refused},
		"200": {Description: "OK", Content: map[string]*huma.MediaType{
			contentType: {Schema: schemas.Schema(reflect.TypeOf(sample), true, "")},
		}},
		"304": {Description: "Nothing has changed"},
	}
	for code, description := range refusals {
		r := &huma.Response{Description: description, Content: refused}
		if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
			r.Headers = map[string]*huma.Header{"Retry-After": {
				Description: "seconds to wait, at least 1", Schema: &huma.Schema{Type: huma.TypeInteger, Examples: []any{1}},
			}}
		}
		all[fmt.Sprint(code)] = r
	}
	return all
}

// complete says what no tag of a field can: where a matrix may be null, and which states it has.
// It takes out huma's own form of errors, which is written as a Problem.
func complete(schemas huma.Registry) {
	delete(schemas.Map(), "ErrorModel")
	delete(schemas.Map(), "ErrorDetail")
	cell := func(field string) *huma.Schema { return schemas.Map()["Matrix"].Properties[field].Items.Items }
	for _, field := range []string{"mean", "heavy_ratio", "mode"} {
		cell(field).Nullable = true
	}
	for s := aggregate.NoData; s <= aggregate.Congested; s++ {
		cell("state").Enum = append(cell("state").Enum, s.String())
	}
	for _, field := range []string{"mean", "heavy_ratio", "mode", "state"} {
		schemas.Map()["Matrix"].Properties[field].Items.Nullable = false
	}
}
