package grafanatest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// Query is a panel's query of Prometheus.
type Query struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant"`
}

// series is one series in Prometheus' result: one point of an instant query, or the points of a
// range.
type series struct {
	Metric map[string]string
	Value  point
	Values []point
}

// point is a time in s, and a number as text.
type point [2]any

func (p point) read() (at time.Time, value float64, err error) {
	seconds, _ := p[0].(float64)
	if value, err = strconv.ParseFloat(fmt.Sprint(p[1]), 64); err != nil {
		return at, 0, fmt.Errorf("read a point: %w", err)
	}
	return time.UnixMilli(int64(seconds * 1000)), value, nil
}

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// AskPrometheus queries a server's HTTP API like the data source. It returns a frame for each
// series, or one table for an instant query.
func (v *Viewer) AskPrometheus(server string, q Query) (data.Frames, error) {
	expr := strings.NewReplacer("$__rate_interval", fmt.Sprint(max(4, int(v.Interval.Seconds())+1), "s"), "$job", ".*", "$instance", ".*").Replace(q.Expr)
	path, parameters := "/api/v1/query", url.Values{"query": {expr}, "time": {seconds(v.To)}}
	if !q.Instant {
		path, parameters = "/api/v1/query_range", url.Values{"query": {expr}, "start": {seconds(v.From)}, "end": {seconds(v.To)}, "step": {fmt.Sprint(v.Interval.Seconds())}}
	}
	response, err := http.Get(server + path + "?" + parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read Prometheus' answer: %w", err)
	}
	var answer struct{ Data struct{ Result []series } }
	if err := json.Unmarshal(text, &answer); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask Prometheus: %s: %.600s\n%s", response.Status, text, expr)
	}
	if q.Instant {
		return instantTable(answer.Data.Result)
	}
	var frames data.Frames
	for _, s := range answer.Data.Result {
		frame, err := s.frame(q)
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame)
	}
	return frames, nil
}

func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// frame returns a frame named by the legend.
func (s *series) frame(q Query) (*data.Frame, error) {
	var times []time.Time
	var values []float64
	for _, p := range s.Values {
		at, value, err := p.read()
		if err != nil {
			return nil, err
		}
		times, values = append(times, at), append(values, value)
	}
	field := data.NewField("Value", data.Labels(s.Metric), values)
	field.Config = &data.FieldConfig{DisplayNameFromDS: label.ReplaceAllStringFunc(q.LegendFormat, func(all string) string {
		return s.Metric[label.FindStringSubmatch(all)[1]]
	})}
	frame := data.NewFrame("", data.NewField("Time", nil, times), field)
	frame.RefID = q.RefID
	return frame, nil
}

// instantTable has a column for each label of the series.
func instantTable(list []series) (data.Frames, error) {
	if len(list) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	times, values := make([]time.Time, len(list)), make([]float64, len(list))
	for i, s := range list {
		for name := range s.Metric {
			names[name] = true
		}
		var err error
		if times[i], values[i], err = s.Value.read(); err != nil {
			return nil, err
		}
	}
	frame := data.NewFrame("", data.NewField("Time", nil, times))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var column []string
		for _, s := range list {
			column = append(column, s.Metric[name])
		}
		frame.Fields = append(frame.Fields, data.NewField(name, nil, column))
	}
	frame.Fields = append(frame.Fields, data.NewField("Value", nil, values))
	return data.Frames{frame}, nil
}
