package grafana

import (
	"strconv"
	"strings"
	"time"

	"github.com/grafana-tools/sdk"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/csig"
)

// When Grafana asks for the values of a variable.
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

// choice is a variable of a fixed set of values, the first of which is chosen.
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
		options = append(options, option(s.FullName(), int64(s)))
	}
	return choice("signal", "Signal", options...)
}

// resolutionVariable chooses the tables: its text is the suffix of their views, its value
// the length of their windows in ns.
func resolutionVariable(fine time.Duration) sdk.TemplateVar {
	return choice("resolution", "Rows of", option("1s", int64(time.Second)), option("1m", int64(time.Minute)), option("fine", int64(fine)))
}

func levelVariable() sdk.TemplateVar {
	var options []sdk.Option
	for _, l := range fabric.Levels() {
		options = append(options, option(l.String(), int64(l)))
	}
	return choice("level", "Locations by", options...)
}

// groupVariable chooses a group by its name. Ids are no values for it: they exceed what a
// JavaScript number holds.
func groupVariable(name, label string) sdk.TemplateVar {
	const groups = "SELECT name FROM groups FINAL WHERE name NOT IN ('unknown', 'overflow') ORDER BY level = 'pod', ord, name LIMIT 5000"
	v := variable(name, label, "query", groups, refreshLoad)
	v.Datasource = storeSource()
	return v
}

// locationVariable is empty for all locations; data links fill it in.
func locationVariable() sdk.TemplateVar {
	v := variable("location", "Location", "textbox", "", refreshNever)
	v.Current = current("", "")
	return v
}
