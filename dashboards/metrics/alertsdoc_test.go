package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/dashboards/metrics"
)

var write = flag.Bool("write", false, "write the generated files again")

// TestGenerated compares ALERTS.md, the target of the alerts' runbook_url, with the rules.
func TestGenerated(t *testing.T) {
	const file = "ALERTS.md"
	groups, err := metrics.Rules()
	if err != nil {
		t.Fatal(err)
	}
	made := alertsDocument(groups)
	if *write {
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != made {
		t.Errorf("%s is not what the rules make now: run make generate (%v)", file, err)
	}
}

// Templates of a summary: one with the label or the value that it inserts, and those of a condition.
var (
	inserted  = regexp.MustCompile(`{{ \$(?:labels\.)?(\w+)[^}]*}}`)
	condition = regexp.MustCompile(`{{ if [^}]*}}(.*){{ else }}(.*){{ end }}`)
)

// summaryText returns an alert's summary with labels and the value in capitals, and both branches of a
// condition. Of two labels in a row an alert has one.
func summaryText(summary string) string {
	summary = condition.ReplaceAllString(summary, "$1 or $2")
	summary = strings.ReplaceAll(summary, "}}{{", "}} or {{")
	return inserted.ReplaceAllStringFunc(summary, func(s string) string { return strings.ToUpper(inserted.FindStringSubmatch(s)[1]) })
}

// alertsDocument returns a section for each alert. Its anchor is the alert's name, so that alerts
// can link to it.
func alertsDocument(groups []metrics.RuleGroup) string {
	var b strings.Builder
	b.WriteString(`# Alerts

Each alert has its text, with labels and the value in capitals, then what to look at, and what to do first.
The rules are in [csigscope.rules.yaml](alerts/csigscope.rules.yaml), from which make generate writes
this page. On a machine with the [systemd units](../../cmd/csigscope/systemd), run the commands below with
sudo, and add ` + "`--store embedded:/var/lib/csigscope/store`" + ` to those that need the store (query, schema).
`)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n", g.Name)
		for i := range g.Rules {
			r := &g.Rules[i]
			lasting := "as soon as"
			if r.For != "" {
				lasting = "after " + r.For + " of"
			}
			fmt.Fprintf(&b, "\n### <a name=%q></a>%s\n\n*%s*\n\n%s\n\nSeverity %s, fires %s\n\n```\n%s\n```\n",
				r.Alert, r.Alert, summaryText(r.Annotations["summary"]), r.Annotations["runbook"], r.Labels["severity"], lasting, strings.TrimSpace(r.Expr))
		}
	}
	return b.String()
}
