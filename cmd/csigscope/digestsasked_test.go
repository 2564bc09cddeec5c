package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/tabular/tabulartest"
	"github.com/csigscope/csigscope/ingest/edge"
)

// notResults are columns of tables and fields of answers whose values differ between runs or
// machines without a change in results. Digests omit these values.
var notResults = map[string]string{
	"at": "when it was written", "stored_at": "when it was written", "used": "when it was used last",
	"as_of": "when it was asked", "asOf": "when it was asked", "generated_at": "when it was asked",
	"age_s": "since then", "ageS": "since then",
	"next_cursor": "holds as_of", "nextCursor": "holds as_of",
	"elapsed_seconds": "how fast the machine is",
	"seq":             "how rows were packed into blocks on their way",
}

// definedIDs are the tables that define identities. They keep them; everywhere else identities
// are replaced by names, so that a new derivation of identities changes only the digests of
// these tables.
var definedIDs = []string{"groups", "locations", "runs", "epochs"}

// digits is the minimum length of a number that may be an identity: counts are shorter.
const digits = 12

// precision is the number of digits kept of a fraction: the last digits of floating point sums
// depend on the order and the instructions of a machine.
const precision = 12

// normalised parses JSON, drops values that are not results, and replaces identities by names.
func (r *digestRun) normalised(text []byte, names map[string]string) any {
	r.t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		r.t.Fatalf("decode %.200q: %v", text, err)
	}
	return normalised(v, names)
}

func normalised(v any, names map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			if _, left := notResults[key]; left {
				value = "-"
			}
			out[named(key, names)] = normalised(value, names)
		}
		return out
	case []any:
		for i := range v {
			v[i] = normalised(v[i], names)
		}
	case json.Number:
		if name := named(v.String(), names); name != v.String() {
			return name
		}
		return json.Number(rounded(v.String()))
	case string:
		return named(v, names)
	}
	return v
}

func named(text string, names map[string]string) string {
	if len(text) < digits {
		return text
	}
	return cmp.Or(names[text], text)
}

func rounded(text string) string {
	if len(text) <= precision || !strings.ContainsAny(text, ".e") {
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(f, 'g', precision, 64)
}

// filled drops the columns of a row that are not results, and those that are 0 or empty: a new
// column then changes only the digests of rows that use it.
func filled(row any) any {
	columns := row.(map[string]any)
	for name, v := range columns {
		empty := v == json.Number("0") || v == ""
		switch v := v.(type) {
		case []any:
			empty = len(v) == 0
		case map[string]any:
			empty = len(v) == 0
		}
		if _, left := notResults[name]; left || empty {
			delete(columns, name)
		}
	}
	return columns
}

// sql returns the rows of a statement as JSON, one per line.
func (r *digestRun) sql(statement string, args ...any) []byte {
	r.t.Helper()
	statement = fmt.Sprintf(statement, args...)
	body, status := r.fetch(http.MethodPost, r.clickhouse, statement+" FORMAT JSONEachRow", "text/plain")
	if status != http.StatusOK {
		r.t.Fatalf("%s: %s", statement, body.text)
	}
	return body.text
}

// sqlRows returns those rows decoded.
func sqlRows[T any](r *digestRun, statement string, args ...any) (rows []T) {
	r.t.Helper()
	d := json.NewDecoder(bytes.NewReader(r.sql(statement, args...)))
	for {
		var row T
		switch err := d.Decode(&row); err {
		case nil:
			rows = append(rows, row)
		case io.EOF:
			return rows
		default:
			r.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// rowLines returns rows in normal form, one per line.
func (r *digestRun) rowLines(rows []byte, names map[string]string) (lines []string) {
	r.t.Helper()
	for line := range bytes.Lines(rows) {
		text, err := json.Marshal(filled(r.normalised(line, names)))
		if err != nil {
			r.t.Fatal(err)
		}
		lines = append(lines, string(text)+"\n")
	}
	slices.Sort(lines)
	return lines
}

// fetched is a response.
type fetched struct {
	text            []byte
	header, trailer http.Header
}

// fetch repeats a request until the server is not too busy to answer.
func (r *digestRun) fetch(method, address, body, contentType string) (f fetched, status int) {
	r.t.Helper()
	var problem error
	answered := comes(func() bool {
		request, err := http.NewRequestWithContext(r.t.Context(), method, address, strings.NewReader(body))
		if err != nil {
			r.t.Fatal(err)
		}
		if body != "" {
			request.Header.Set("Content-Type", contentType)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			problem = err
			return false
		}
		defer response.Body.Close()
		f.text, problem = io.ReadAll(response.Body)
		f.header, f.trailer, status = response.Header, response.Trailer, response.StatusCode
		switch status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			problem = errors.New(response.Status)
		}
		return problem == nil
	})
	if !answered {
		r.t.Fatalf("%s: %v", address, problem)
	}
	return f, status
}

// makeGaps stores two gaps, which no replay leaves behind: one of dropped packets next to
// captured ones, and one of lost rows.
func (r *digestRun) makeGaps(socket string) {
	r.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Post("http://engine/writer?database=csigscope", "text/plain", strings.NewReader(
		`INSERT INTO gaps (producer, incarnation, epoch, resolution_ns, window_from, window_to, rows, observations, reason, id, at)
		 SELECT producer, incarnation, epoch, g.1, toDateTime64(g.2, 9, 'UTC'), toDateTime64(g.3, 9, 'UTC'), g.4, g.5, g.6, 7, now64(3)
		 FROM (SELECT * FROM runs FINAL WHERE (producer, incarnation, epoch) NOT IN superseded ORDER BY name LIMIT 1)
		 ARRAY JOIN [(0, '2026-01-05 00:00:00.100', '2026-01-05 00:00:01.300', 0, 1000, 'drops'), (1000000000, '2026-01-05 00:00:00', '2026-01-05 00:00:01', 3, 70, 'full')] AS g`))
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		r.t.Fatalf("store gaps: %s", text)
	}
}

// digestFacts are values that questions about a scenario use.
type digestFacts struct {
	from, to         time.Time // whole seconds around all windows
	signals          []string  // numbers
	groups           []string
	src, dst         string // pair with the most heavy observations
	location, device string // named by the most heavy observations
}

// learn reads the names of identities and the available values.
func (r *digestRun) learn() {
	type identity struct {
		ID   json.Number
		Name string
	}
	r.names = map[string]string{}
	add := func(what, statement string) {
		for _, i := range sqlRows[identity](r, statement) {
			// Two locations may share a name if their sets of ports are abbreviated alike.
			name := what + " " + i.Name
			for n := 2; slices.Contains(slices.Collect(maps.Values(r.names)), name); n++ {
				name = fmt.Sprintf("%s %s (%d)", what, i.Name, n)
			}
			r.names[i.ID.String()] = name
		}
	}
	add("group", "SELECT id, name FROM groups FINAL WHERE id > 1 ORDER BY name, level, parent")
	add("location", "SELECT id, name FROM locations FINAL WHERE id > 1 ORDER BY name, candidates, kind, device, stage, orientation, capacity")
	add("producer", "SELECT DISTINCT producer AS id, name FROM runs")
	add("incarnation", "SELECT incarnation AS id, '' AS name FROM runs GROUP BY incarnation ORDER BY max(at)")
	add("epoch", "SELECT epoch AS id, '' AS name FROM epochs FINAL ORDER BY at")

	type span struct {
		First, Last int64
		Signals     []json.Number
	}
	s := sqlRows[span](r, "SELECT toUnixTimestamp(min(window_start)) AS first, toUnixTimestamp(max(window_start)) AS last, arraySort(groupUniqArray(signal)) AS signals FROM partials_1s")[0]
	f := &r.facts
	f.from, f.to = time.Unix(s.First, 0).UTC(), time.Unix(s.Last+1, 0).UTC()
	for _, signal := range s.Signals {
		f.signals = append(f.signals, signal.String())
	}
	for _, g := range sqlRows[identity](r, "SELECT id, name FROM groups FINAL WHERE id > 1 ORDER BY ord, name LIMIT 4") {
		f.groups = append(f.groups, g.Name)
	}
	type pair struct{ Src, Dst string }
	p := sqlRows[pair](r, `SELECT s.name AS src, d.name AS dst FROM partials_1s AS p
		JOIN (SELECT * FROM groups FINAL) AS s ON p.src_group = s.id JOIN (SELECT * FROM groups FINAL) AS d ON p.dst_group = d.id
		GROUP BY src, dst ORDER BY sum(heavy) DESC, sum(observations) DESC, src, dst LIMIT 1`)[0]
	f.src, f.dst = p.Src, p.Dst
	type limit struct{ Location, Device string }
	l := sqlRows[limit](r, `SELECT l.name AS location, l.device AS device FROM partials_1s AS p JOIN (SELECT * FROM locations FINAL) AS l ON p.location = l.id
		GROUP BY location, device ORDER BY sum(heavy) DESC, sum(observations) DESC, location, device LIMIT 1`)[0]
	f.location, f.device = l.Location, l.Device
}

var viewParameters = regexp.MustCompile(`\{(\w+):`)

// askTables digests the columns and rows of every table, and the result of every view for each
// value of its parameters.
func (r *digestRun) askTables() {
	type relation struct {
		Name, Engine string
		SQL          string
	}
	// These are the same in every store; views have columns only with parameters.
	same := func(kind, name string, text []byte) {
		r.digests.add(r.t, digestKey{everyRun, everyRun, kind, name}, bytes.NewReader(text), -1)
	}
	for _, table := range sqlRows[relation](r, "SELECT name, engine, create_table_query AS SQL FROM system.tables WHERE database = currentDatabase() ORDER BY name") {
		names := r.names
		if slices.Contains(definedIDs, table.Name) {
			names = nil
		}
		final := ""
		if strings.HasPrefix(table.Engine, "Replacing") {
			final = "FINAL"
		}
		if table.Engine != "View" {
			same("columns", table.Name, r.sql("SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = '%s' ORDER BY position", table.Name))
			text := []byte(strings.Join(r.rowLines(r.sql("SELECT * FROM %s %s", table.Name, final), names), ""))
			if strings.HasPrefix(table.Name, "schema_") {
				same("table", table.Name, text)
			} else {
				r.add("table", table.Name, text, -1)
			}
		} else if r.asks() && r.chooses(table.Name) && r.picks("view", table.Name) {
			r.askView(table.Name, table.SQL)
		}
	}
}

// chooses reports whether the run queries a view: unless it is thorough, one of several that
// differ only by resolution, and none of rows of both resolutions, of which answers of the API are made.
func (r *digestRun) chooses(view string) bool {
	if strings.HasSuffix(view, "_either") {
		return r.thorough()
	}
	for _, resolution := range resolutions {
		if name, several := strings.CutSuffix(view, resolution); several {
			return slices.Contains(r.choose(name, resolutions), resolution)
		}
	}
	return true
}

// resolutions are the suffixes of tables and views.
var resolutions = []string{"_1s", "_1m", "_fine"}

// askView queries a view as often as the parameter with the most values has values; other
// parameters cycle through theirs.
func (r *digestRun) askView(name, sql string) {
	values := map[string][]string{}
	times := 1
	for _, match := range viewParameters.FindAllStringSubmatch(sql, -1) {
		p := match[1]
		values[p] = r.choose(p, r.viewValues(name, p))
		times = max(times, len(values[p]))
	}
	var text bytes.Buffer
	rows := 0
	for i := range times {
		call := ""
		for _, p := range slices.Sorted(maps.Keys(values)) {
			call += fmt.Sprintf(", %s='%s'", p, values[p][i%len(values[p])])
		}
		if call != "" {
			call = "(" + call[2:] + ")"
		}
		lines := r.rowLines(r.sql("SELECT * FROM %s%s", name, call), r.names)
		fmt.Fprintf(&text, "# %s%s\n%s", name, call, strings.Join(lines, ""))
		rows += len(lines)
	}
	r.add("view", name, text.Bytes(), rows)
}

// viewValues returns the values for a parameter of a view, in turn.
func (r *digestRun) viewValues(view, parameter string) []string {
	const form = "2006-01-02 15:04:05"
	f := &r.facts
	minute, fine := strings.HasSuffix(view, "_1m"), strings.HasSuffix(view, "_fine")
	from, to, steps := f.from, f.to, []string{"1000000000", "2000000000"}
	switch {
	case minute:
		from, to, steps = from.Truncate(time.Minute), from.Truncate(time.Minute).Add(time.Minute), []string{"60000000000"}
	case fine:
		steps = []string{"10000000", "100000000"}
	case strings.HasSuffix(view, "_either"):
		steps = []string{"60000000000"}
	}
	switch parameter {
	case "from":
		return []string{from.Format(form)}
	case "to":
		return []string{to.Format(form)}
	case "signal":
		return f.signals
	case "level":
		return []string{"0", "1", "2", "3"}
	case "step_ns":
		return steps
	case "onset":
		return []string{"0.05"}
	case "clear":
		return []string{"0.02"}
	case "resolution_ns":
		if fine {
			return []string{"10000000"}
		}
		return []string{"1000000000", "60000000000"}
	case "apart":
		return []string{fmt.Sprintf("[%d]", to.Truncate(time.Minute).Unix()), "[]"}
	case "by_second":
		return []string{"0", "0", "1"}
	case "group":
		return append([]string{f.src, f.dst}, f.groups...)
	}
	r.t.Fatalf("view %s takes %s: say in viewValues with which values digests ask", view, parameter)
	return nil
}

// openAPI is the part of the API's description that digests use.
type openAPI struct {
	Paths map[string]map[string]struct {
		Parameters []apiParameter
	}
}

type apiParameter struct {
	Name, In string
	Required bool
	Schema   struct {
		Enum, Examples []any
		Items          struct{ Enum []any }
	}
}

// pageQuestions are the page's questions, which the API's description omits. Only the thorough
// run uses those after the first two.
var pageQuestions = []string{
	"/api/v1/extent", "/api/v1/frames?fields=all&signal=min_abw_ratio",
	"/api/v1/frames?fields=lean&signal=max_delay&level=device&step=2s", "/api/v1/bundle", "/api/v1/bundle?level=location,set,device,stage",
}

// askAPI asks every question of the API's description. The thorough run asks it once with the
// required parameters, and once for each value of each other parameter: those in the
// description, else groups and locations of the scenario, else the examples. Other runs ask it
// once, with a value for each parameter that has a fixed set of values.
func (r *digestRun) askAPI() {
	t, f := r.t, &r.facts
	span := func(later time.Duration) url.Values {
		return url.Values{"from": {f.from.Add(later).Format(time.RFC3339)}, "to": {f.to.Add(later).Format(time.RFC3339)}}
	}
	base := strings.TrimSuffix(r.page, "/")
	description, _ := r.fetch(http.MethodGet, base+"/openapi.json", "", "")
	for path, methods := range decodeJSON[openAPI](t, string(description.text)).Paths {
		if strings.HasPrefix(path, edge.AdminPath) || path == "/api/v1/bundle" {
			continue // the former describe the server, not stored data; the latter is among pageQuestions
		}
		if !r.picks("api", path) {
			continue
		}
		question, get := methods["get"]
		if !get || len(methods) > 1 {
			t.Fatalf("%s is not asked by GET alone", path)
		}
		q := apiQuestion{digestRun: r, address: base + path}
		if len(question.Parameters) > 0 {
			q.must = span(0)
		}
		for _, p := range question.Parameters {
			if p.Required {
				q.must.Set(p.Name, r.apiValues(path, &p)[0])
			}
		}
		if r.thorough() {
			q.ask(nil)
		}
		for _, p := range question.Parameters {
			switch {
			case !r.thorough():
				if len(p.Schema.Enum) > 0 || p.Name == "signal" {
					q.must[p.Name] = r.choose(p.Name, r.apiValues(path, &p))
				}
			case p.In == "header" || p.Name == "cursor" || p.Name == "to": // limit covers cursors, from covers to
			case p.Name == "from":
				q.ask(span(time.Second))
			case p.Name == "limit":
				q.askPages()
			default:
				for _, value := range r.apiValues(path, &p) {
					q.ask(url.Values{p.Name: {value}})
				}
			}
		}
		if !r.thorough() {
			q.ask(nil)
		}
		r.add("api", path, q.text.Bytes(), q.asked)
		name := strings.TrimPrefix(path, "/api/v1/")
		if !r.thorough() || strings.Contains(name, "export") || name == "watch" || name == "changes" {
			continue // tables have no calls; a stream begins with windows in memory
		}
		q = apiQuestion{digestRun: r, address: base + "/csigscope.query.v1.QueryService/" + strings.ToUpper(name[:1]) + name[1:], must: q.must}
		q.call()
		r.add("call", name, q.text.Bytes(), q.asked)
	}
	page := pageQuestions
	if !r.thorough() {
		page = page[:2]
	}
	for _, path := range page {
		if !r.picks("page", path) {
			continue
		}
		path, query, _ := strings.Cut(path, "?")
		q := apiQuestion{digestRun: r, address: base + path}
		with, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q.ask(with)
		r.add("page", strings.Trim(path+"?"+query, "?"), q.text.Bytes(), q.asked)
	}
}

// apiValues returns the values for a parameter, in turn.
func (r *digestRun) apiValues(path string, p *apiParameter) (values []string) {
	f := &r.facts
	switch p.Name {
	case "src":
		return []string{f.src}
	case "dst":
		return []string{f.dst}
	case "location":
		return []string{f.location}
	case "device":
		return []string{f.device}
	case "signal":
		return []string{"min_abw", "min_abw_ratio", "max_delay", "max_nqd"}
	}
	listed := slices.Concat(p.Schema.Enum, p.Schema.Items.Enum)
	if len(listed) == 0 {
		listed = p.Schema.Examples
	}
	for _, v := range listed {
		if list, isList := v.([]any); isList {
			v = list[0]
		}
		values = append(values, fmt.Sprint(v))
	}
	if len(values) == 0 {
		r.t.Fatalf("%s takes %s, without values to choose from or examples: say in apiValues with which values digests ask", path, p.Name)
	}
	return values
}

// apiQuestion is one question with its parameters, and its answers.
type apiQuestion struct {
	*digestRun
	address string
	must    url.Values // parameters of every request
	text    bytes.Buffer
	asked   int
}

// ask sends the question with parameters that override the required ones, and returns the
// cursor of the next page. For a refusal, only the status is a result.
func (q *apiQuestion) ask(with url.Values) (cursor string) {
	values := url.Values{}
	maps.Copy(values, q.must)
	maps.Copy(values, with)
	address := q.address
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	answer, status := q.fetch(http.MethodGet, address, "", "")
	q.asked++
	values.Del("cursor")
	fmt.Fprintf(&q.text, "# %s %d\n", values.Encode(), status)
	if status != http.StatusOK {
		return ""
	}
	switch kind, _, _ := strings.Cut(answer.header.Get("Content-Type"), ";"); kind {
	case "application/json":
		q.text.Write(indented(q.t, q.normalised(answer.text, q.names)))
		return decodeJSON[struct {
			Next string `json:"next_cursor"`
		}](q.t, string(answer.text)).Next
	case "text/csv":
		q.table(tabular.CSV, answer.text)
	case "application/x-ndjson":
		for line := range bytes.Lines(answer.text) {
			q.text.Write(indented(q.t, q.normalised(line, q.names)))
		}
	case "application/vnd.apache.parquet":
		q.table(tabular.Parquet, answer.text)
	case "application/vnd.apache.arrow.stream":
		q.table(tabular.Arrow, answer.text)
	case "application/octet-stream": // frames: length of the head, head, columns
		length := int(answer.text[0]) | int(answer.text[1])<<8 | int(answer.text[2])<<16 // little-endian
		q.text.Write(indented(q.t, q.normalised(answer.text[4:4+length], q.names)))
		fmt.Fprintf(&q.text, "%x\n", answer.text[4+length:])
	default:
		q.t.Fatalf("%s answers with %s, which digests cannot read", address, kind)
	}
	for _, name := range slices.Sorted(maps.Keys(answer.trailer)) {
		fmt.Fprintln(&q.text, name, answer.trailer.Get(name))
	}
	return ""
}

// askPages requests the first pages of two rows.
func (q *apiQuestion) askPages() {
	with := url.Values{"limit": {"2"}}
	for range 3 {
		cursor := q.ask(with)
		if cursor == "" {
			return
		}
		with.Set("cursor", cursor)
	}
}

// table writes the rows of a table, one per line.
func (q *apiQuestion) table(f tabular.Format, body []byte) {
	rows, _, err := tabulartest.Read(f, body)
	if err != nil {
		q.t.Fatal(err)
	}
	for _, row := range rows {
		for i := range row {
			row[i] = rounded(row[i])
		}
		fmt.Fprintln(&q.text, strings.Join(row, ","))
	}
}

// call sends the same question over Connect, in JSON: once with the required parameters, and
// for questions with a signal once for delays.
func (q *apiQuestion) call() {
	message := map[string]string{}
	for name, values := range q.must {
		message[name] = values[0]
	}
	for _, signal := range []string{"", "max_delay"} {
		if signal != "" {
			message["signal"] = signal
		}
		body, err := json.Marshal(message)
		if err != nil {
			q.t.Fatal(err)
		}
		answer, status := q.fetch(http.MethodPost, q.address, string(body), "application/json")
		q.asked++
		fmt.Fprintf(&q.text, "# %s %d\n", body, status)
		if status == http.StatusOK {
			q.text.Write(indented(q.t, q.normalised(answer.text, q.names)))
		}
	}
}
