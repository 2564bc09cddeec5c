package store

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// TestViewsWithBoundParameters asks every parameterized view as other programs do, with
// parameters of the query, and wants each of its parameters to be required.
func TestViewsWithBoundParameters(t *testing.T) {
	sequential(t)
	s := covered(t)
	values := clickhouse.Parameters{
		"signal": "2", "from": stamp(testStart), "to": stamp(testStart.Add(time.Minute)), "level": "1",
		"resolution_ns": fmt.Sprint(time.Second.Nanoseconds()), "step_ns": fmt.Sprint(time.Second.Nanoseconds()), "group": "rack1",
	}
	parameter := regexp.MustCompile(`\{(\w+):([^}]+)\}`)
	asked := 0
	for _, m := range s.schema {
		for _, statement := range m.Statements {
			name := created.FindStringSubmatch(statement)
			if name == nil || m.Version != 0 {
				continue
			}
			var bound []string
			types := map[string]string{}
			for _, p := range parameter.FindAllStringSubmatch(statement, -1) {
				if _, seen := types[p[1]]; !seen {
					bound = append(bound, fmt.Sprintf("%s = {%[1]s:%s}", p[1], p[2]))
					types[p[1]] = p[2]
				}
			}
			if len(bound) == 0 {
				continue
			}
			asked++
			ctx := clickhouse.Context(t.Context(), clickhouse.WithParameters(values))
			ask := func(arguments []string) error {
				rows, err := s.reader.Query(ctx, fmt.Sprintf("SELECT count() FROM %s.%s(%s)", s.database, name[1], strings.Join(arguments, ", ")))
				if err == nil {
					err = rows.Close()
				}
				return err
			}
			if err := ask(bound); err != nil {
				t.Errorf("%s: %v", name[1], err)
			}
			for i := range bound {
				if ask(slices.Delete(slices.Clone(bound), i, i+1)) == nil {
					t.Errorf("%s: answers without %s", name[1], bound[i])
				}
			}
		}
	}
	if asked < 5*numGrains+3 {
		t.Errorf("%d views asked", asked)
	}
}
