// Package grafanatest runs a dashboard's queries like Grafana and its data sources: it expands
// variables and macros, queries over HTTP, and builds data frames. Grafana's own packages process
// the frames, in Node and in a browser.
//
// It knows Grafana's rules. It must never know what a dashboard shows.
package grafanatest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// Choice is the selected value of a variable.
type Choice struct{ Text, Value string }

// Viewer is a user who looks at dashboards.
type Viewer struct {
	URL      string // of ClickHouse's HTTP interface, with the database
	From, To time.Time
	Interval time.Duration // Grafana's suggested window length
	Choices  map[string]Choice
}

var reference = regexp.MustCompile(`\$\{(\w+):(\w+)\}`)

// Expand replaces variables like Grafana's page, and then macros like the data source. Unknown ones
// are errors.
func (v *Viewer) Expand(sql string) (string, error) {
	var unknown []string
	sql = reference.ReplaceAllStringFunc(sql, func(all string) string {
		parts := reference.FindStringSubmatch(all)
		c, known := v.Choices[parts[1]]
		switch {
		case !known:
		case parts[2] == "raw":
			return c.Value
		case parts[2] == "text":
			return c.Text
		case parts[2] == "percentencode":
			return strings.ReplaceAll(url.QueryEscape(c.Value), "+", "%20")
		}
		unknown = append(unknown, all)
		return all
	})
	sql = strings.NewReplacer(
		"$__interval_ms", strconv.FormatInt(v.Interval.Milliseconds(), 10),
		"$__fromTime_ms", fmt.Sprintf("fromUnixTimestamp64Milli(%d)", v.From.UnixMilli()),
		"$__toTime_ms", fmt.Sprintf("fromUnixTimestamp64Milli(%d)", v.To.UnixMilli()),
	).Replace(sql)
	if at := strings.IndexByte(sql, '$'); at >= 0 {
		unknown = append(unknown, sql[at:min(at+30, len(sql))])
	}
	if len(unknown) > 0 {
		return "", fmt.Errorf("expand query: nobody expands %q", unknown)
	}
	return sql, nil
}

// answer is a result in ClickHouse's format JSONCompact.
type answer struct {
	Meta []struct{ Name, Type string }
	Data [][]any
}

// Ask runs a query and returns its frame, in the order of the result.
func (v *Viewer) Ask(sql string) (*data.Frame, error) {
	sql, err := v.Expand(sql)
	if err != nil {
		return nil, err
	}
	at := v.URL + "&default_format=JSONCompact&" + url.Values{"output_format_json_quote_64bit_integers": {"1"}}.Encode()
	response, err := http.Post(at, "text/plain", strings.NewReader(sql))
	if err != nil {
		return nil, fmt.Errorf("ask the store: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the store's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the store: %s: %.600s\n%s", response.Status, text, sql)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("read the store's answer: %w: %.200s", err, text)
	}
	return a.frame()
}

// frame gives fields the same types as the data source.
func (a *answer) frame() (*data.Frame, error) {
	frame := data.NewFrame("")
	for i, m := range a.Meta {
		kind := strings.TrimSuffix(strings.TrimPrefix(m.Type, "Nullable("), ")")
		var field *data.Field
		switch {
		case strings.HasPrefix(m.Type, "Nullable(DateTime"):
			field = data.NewField(m.Name, nil, []*time.Time{})
		case strings.HasPrefix(kind, "DateTime"):
			field = data.NewField(m.Name, nil, []time.Time{})
		case kind == "String" || strings.HasPrefix(m.Type, "LowCardinality("):
			field = data.NewField(m.Name, nil, []string{})
		case strings.HasPrefix(kind, "UInt") || strings.HasPrefix(kind, "Int") || strings.HasPrefix(kind, "Float"):
			field = data.NewField(m.Name, nil, []*float64{})
		default:
			return nil, fmt.Errorf("column %s: a panel has no use for the type %s", m.Name, m.Type)
		}
		for _, row := range a.Data {
			value, err := valueOf(field.Type(), row[i])
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", m.Name, err)
			}
			field.Append(value)
		}
		frame.Fields = append(frame.Fields, field)
	}
	return frame, nil
}

func valueOf(kind data.FieldType, v any) (any, error) {
	text, isText := v.(string)
	switch {
	case kind == data.FieldTypeTime:
		return time.Parse("2006-01-02 15:04:05.999999999", text)
	case kind == data.FieldTypeNullableTime && v == nil:
		return (*time.Time)(nil), nil
	case kind == data.FieldTypeNullableTime:
		at, err := time.Parse("2006-01-02 15:04:05.999999999", text)
		return &at, err
	case kind == data.FieldTypeString:
		return text, nil
	case v == nil:
		return (*float64)(nil), nil
	case isText:
		number, err := strconv.ParseFloat(text, 64)
		return &number, err
	}
	number, ok := v.(float64)
	if !ok {
		return nil, fmt.Errorf("%v is no number", v)
	}
	return &number, nil
}
