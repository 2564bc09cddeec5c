package grafana

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana-tools/sdk"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// object is JSON without a current model in the sdk.
type object = map[string]any

// Result formats of the ClickHouse data source.
const (
	formatSeries = 0 // converts long frames to wide ones
	formatTable  = 1
)

// panel describes one panel in the terms of Grafana's panel plugins, whose types are in
// @grafana/schema.
type panel struct {
	id            uint // used by data links
	title, about  string
	kind          string
	width, height int
	targets       []object
	source        object // data source; nil: ClickHouse
	defaults      object // fieldConfig.defaults
	overrides     []object
	options       object
	transform     []object
	points        int // maxDataPoints; 0: depends on the panel's width
	interval      string
}

func storeSource() object { return object{"type": storePlugin, "uid": "${datasource}"} }

// sqlTarget returns a query of the ClickHouse data source.
func sqlTarget(sql string, format int) object {
	kind := "table"
	if format == formatSeries {
		kind = "timeseries"
	}
	return object{
		"refId": "A", "datasource": storeSource(), "editorType": "sql", "pluginVersion": "4.0.0",
		"rawSql": sql, "format": format, "queryType": kind,
	}
}

// build returns the sdk's panel at the given place.
func (p *panel) build(x, y int) *sdk.Panel {
	out := sdk.NewCustom(p.title)
	out.ID, out.Type = p.id, p.kind
	out.GridPos.X, out.GridPos.Y, out.GridPos.W, out.GridPos.H = &x, &y, &p.width, &p.height
	if p.about != "" {
		out.Description = &p.about
	}
	custom := sdk.CustomPanel{}
	if p.kind == "row" {
		custom["collapsed"], custom["panels"] = false, []object{}
	} else {
		custom["options"] = orEmpty(p.options)
		source := p.source
		if source == nil {
			source = storeSource()
		}
		out.Datasource = source
		custom["targets"] = p.targets
		custom["fieldConfig"] = object{"defaults": orEmpty(p.defaults), "overrides": append([]object{}, p.overrides...)}
		custom["transformations"] = append([]object{}, p.transform...)
	}
	if p.points > 0 {
		custom["maxDataPoints"] = p.points
	}
	if p.interval != "" {
		custom["interval"] = p.interval
	}
	out.CustomPanel = &custom
	return out
}

func orEmpty(o object) object {
	if o == nil {
		return object{}
	}
	return o
}

// override sets properties of the field with a name.
func override(field string, properties object) object {
	return overrideBy("byName", field, properties)
}

// named shows a column under another name.
func named(field, title string) object {
	return override(field, object{"displayName": title})
}

// hide removes a column from a table.
func hide(field string) object {
	return override(field, object{"custom.hideFrom.viz": true})
}

// overrideBy sets properties of the fields that one of Grafana's matchers selects.
func overrideBy(matcher, options string, properties object) object {
	list := make([]object, 0, len(properties))
	for _, id := range slices.Sorted(maps.Keys(properties)) {
		list = append(list, object{"id": id, "value": properties[id]})
	}
	return object{"matcher": object{"id": matcher, "options": options}, "properties": list}
}

func legend(show bool) object {
	return object{"showLegend": show, "displayMode": "list", "placement": "bottom", "calcs": []string{}}
}

func tooltip(mode string) object { return object{"mode": mode, "sort": "none"} }

func color(mode string) object { return object{"mode": mode} }

func hidden() object { return object{"legend": false, "tooltip": false, "viz": false} }

// colored fills a table's cells with colors by value. Columns share the available width and have
// the given minimum width in pixels; Grafana's default is 150.
func colored(minWidth int) object {
	return object{"align": "center", "inspect": false, "minWidth": minWidth, "cellOptions": object{"type": "color-background", "mode": "basic"}}
}

// plain returns a table's cells without colors. They have no text for missing values: Grafana would
// put it into each empty cell, and a table without rows cannot tell health from silence.
func plain() object {
	return object{
		"custom": object{"align": "auto", "inspect": true, "minWidth": 80, "cellOptions": object{"type": "auto"}},
		"color":  color("thresholds"), "thresholds": thresholds("text"), "mappings": []object{empty()},
	}
}

// empty shows empty texts without a color: they stand for no location.
func empty() object { return special("empty", "transparent") }

// special maps one of Grafana's special values to an empty text with the given color.
func special(match, color string) object {
	return object{"type": "special", "options": object{"match": match, "result": object{"text": "", "color": color, "index": 0}}}
}

func tableOptions() object { return object{"cellHeight": "sm", "showHeader": true, "frameIndex": 0} }

// thresholds returns one step: the color of unmapped values.
func thresholds(base string) object {
	return object{"mode": "absolute", "steps": []object{{"color": base, "value": nil}}}
}

// lines returns the fields of a time series panel.
func lines(fill int) object {
	return object{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "spanNulls": false,
		"lineInterpolation": "stepAfter", "hideFrom": hidden(),
	}
}

func lineOptions() object { return object{"legend": legend(true), "tooltip": tooltip("multi")} }

// maxMappings bounds the locations with their own colors, since each is in the JSON of every panel
// that names locations. Further locations look alike.
const maxMappings = 1000

// Colors of states, and of locations without their own color.
const (
	clearColor   = "#1e4d2b"
	briefColor   = "#4d4a1e" // something was heavy, but the cell is not congested
	fewColor     = "#48525f"
	noDataColor  = "#1b1f26"
	unknownColor = "#8a8f98"
)

// mappings gives locations the page's colors, and states their own.
func mappings(locations []fabric.Location) []object {
	options := object{}
	add := func(value, color string) {
		if _, known := options[value]; !known {
			options[value] = object{"text": value, "color": color, "index": len(options)}
		}
	}
	add("clear", clearColor)
	add("brief", briefColor)
	add("too few", fewColor)
	add("not judged", fewColor)
	add("no data", noDataColor)
	add("no fine row", noDataColor)
	add("congested", unknownColor)
	sorted := byCoarseness(locations)
	for i := range sorted[:min(len(sorted), maxMappings)] {
		add(sorted[i].Name, query.Color(sorted[i]))
	}
	return []object{{"type": "value", "options": options}, empty()}
}

// wordless returns mappings that show the state of most cells by color only.
func wordless(mappings []object) []object {
	options := maps.Clone(mappings[0]["options"].(object))
	for _, state := range []string{"clear", "no data"} {
		options[state] = merged(options[state].(object), object{"text": ""})
	}
	return []object{{"type": "value", "options": options}, empty()}
}

// locationColors returns the colors of locations by name.
func locationColors(locations []fabric.Location) object {
	colors := object{}
	sorted := byCoarseness(locations)
	for i := range sorted[:min(len(sorted), maxMappings)] {
		colors[sorted[i].Name] = query.Color(sorted[i])
	}
	return colors
}

func byCoarseness(locations []fabric.Location) []fabric.Location {
	return slices.SortedStableFunc(slices.Values(locations), func(a, b fabric.Location) int {
		return cmp.Or(cmp.Compare(coarseness(&a), coarseness(&b)), cmp.Compare(a.Name, b.Name))
	})
}

// coarseness sorts stages first and ports last.
func coarseness(l *fabric.Location) int {
	switch l.ID {
	case l.StageLoc:
		return 0
	case l.DeviceLoc:
		return 1
	case l.Set:
		return 2
	}
	return 3
}

// When Grafana requests the values of a variable.
const (
	refreshNever = 0
	refreshLoad  = 1
	refreshRange = 2
)

func variable(name, label, kind string, query any, refresh int64) sdk.TemplateVar {
	return sdk.TemplateVar{
		Name: name, Label: label, Type: kind, Query: query, Refresh: sdk.BoolInt{Value: &refresh}, Options: []sdk.Option{},
	}
}

func sourceVariable(name, label, plugin string) sdk.TemplateVar {
	return variable(name, label, "datasource", plugin, refreshLoad)
}

// choice returns a variable with fixed values. The first one is selected.
func choice(name, label string, options ...sdk.Option) sdk.TemplateVar {
	var query []string
	for i := range options {
		options[i].Selected = i == 0
		query = append(query, options[i].Text+" : "+options[i].Value)
	}
	v := variable(name, label, "custom", strings.Join(query, ", "), refreshNever)
	v.Options = options
	v.Current = current(options[0].Text, options[0].Value)
	return v
}

func current(text, value string) sdk.Current {
	return sdk.Current{Text: &sdk.StringSliceString{Value: []string{text}, Valid: true}, Value: value}
}

func option(text string, value int64) sdk.Option {
	return sdk.Option{Text: text, Value: strconv.FormatInt(value, 10)}
}

func signalVariable(signals []csig.Signal) sdk.TemplateVar {
	var options []sdk.Option
	for _, s := range signals {
		options = append(options, option(signalTitle(s), int64(s)))
	}
	return choice("signal", "Signal", options...)
}

// signalTitle returns a signal's name for people. It has no comma, which would end an option of a
// variable.
func signalTitle(s csig.Signal) string {
	switch s {
	case csig.MinABWRatio:
		return "available bandwidth of capacity"
	case csig.MinABW:
		return "available bandwidth"
	case csig.MaxDelay:
		return "delay of the worst hop"
	case csig.MaxNQD:
		return "queue depth of the worst hop"
	}
	return s.FullName()
}

// resolutionVariable selects the tables: its text is the suffix of their views, its value the
// length of their windows in ns.
func resolutionVariable(fine time.Duration) sdk.TemplateVar {
	return choice("resolution", "Window length", option("1s", int64(time.Second)), option("1m", int64(time.Minute)), option("fine", int64(fine)))
}

// rowsVariable is the suffix of the views for whole ranges. Users cannot change it: fine rows exist
// only for cells with heavy observations, and sums of 1 s rows are the same.
func rowsVariable() sdk.TemplateVar {
	v := variable("rows", "", "query", "SELECT if('${resolution:text}' = '1m', '1m', '1s')", refreshLoad)
	v.Datasource, v.Hide = storeSource(), sdk.TemplatingHideVariable
	return v
}

// thresholdVariable returns a variable for a threshold of cell states, a share of heavy
// observations. name is the views' parameter.
func thresholdVariable(name, label string, share float64) sdk.TemplateVar {
	text := strconv.FormatFloat(share, 'g', -1, 64)
	v := variable(name, label, "textbox", text, refreshNever)
	v.Current = current(text, text)
	return v
}

// thresholdVariables are thresholds that the user may change.
func thresholdVariables(t aggregate.Thresholds) []sdk.TemplateVar {
	return []sdk.TemplateVar{thresholdVariable("onset", "Congested from", t.Onset), thresholdVariable("clear", "until below", t.Clear)}
}

func levelVariable() sdk.TemplateVar {
	var options []sdk.Option
	for _, l := range fabric.Levels() {
		options = append(options, option(l.String(), int64(l)))
	}
	return choice("level", "Locations by", options...)
}

// groupVariable selects a group by name. IDs cannot be values, since they exceed the range of exact
// JavaScript numbers.
func groupVariable(name, label string) sdk.TemplateVar {
	const groups = "SELECT name FROM groups FINAL WHERE name NOT IN ('unknown', 'overflow') ORDER BY level = 'pod', ord, name LIMIT 5000"
	v := variable(name, label, "query", groups, refreshLoad)
	v.Datasource = storeSource()
	return v
}

// The initially selected cell is the worst in the range, since the fabric's first groups mostly
// exchange no traffic. Groups after the worst one have the fabric's order.
const worstFirst = `
SELECT name
FROM (SELECT id, name, level, ord FROM groups FINAL WHERE name NOT IN ('unknown', 'overflow')) AS g
LEFT JOIN
(
    SELECT %[1]s AS id, toFloat64(max(heavy)) AS weight, sum(observations) AS seen
    FROM cells_{rows}({signal}, {rowspan}, {level}, {judged})
    WHERE %[2]s
    GROUP BY id
) AS c ON c.id = g.id
ORDER BY c.weight = (max(c.weight) OVER ()) AND c.weight > 0 DESC, c.seen > 0 DESC, level = 'pod', ord, name LIMIT 5000`

// rangeVariable is requested again when the range changes.
func rangeVariable(name, label, sql string) sdk.TemplateVar {
	v := variable(name, label, "query", ask(sql), refreshRange)
	v.Datasource = storeSource()
	return v
}

// locationVariable is empty for all locations; data links set it.
func locationVariable() sdk.TemplateVar {
	v := variable("location", "Location", "textbox", "", refreshNever)
	v.Current = current("", "")
	return v
}
