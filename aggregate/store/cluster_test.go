package store

import (
	"regexp"
	"strings"
	"testing"
)

// TestClusterStatements has the engine parse what a cluster is made of.
func TestClusterStatements(t *testing.T) {
	sequential(t)
	s := openStore(t)
	statements, err := ClusterStatements("elsewhere", "prod-1")
	if err != nil {
		t.Fatal(err)
	}
	distributed := 0
	for _, statement := range statements {
		if tree := strings.Join(readStrings(t, s, "EXPLAIN AST "+statement), "\n"); !strings.HasPrefix(tree, "Create") && !strings.HasPrefix(tree, "Alter") {
			t.Errorf("%s:\n%s", statement, tree)
		}
		if n := strings.Count(statement, " ON CLUSTER `prod-1`"); n != 1 {
			t.Errorf("%d times on the cluster:\n%s", n, statement)
		}
		if strings.Contains(statement, "= ReplacingMergeTree") {
			t.Errorf("not replicated:\n%s", statement)
		}
		if strings.Contains(statement, "Distributed(") {
			distributed++
		}
	}
	if want := numGrains + 1; distributed != want {
		t.Errorf("%d distributed tables, want %d", distributed, want)
	}
	// No table has changed since version 1: one that will.
	changed, err := clustered{"elsewhere", "prod-1"}.translate("ALTER TABLE elsewhere.flows ADD COLUMN IF NOT EXISTS n UInt64")
	if want := "ALTER TABLE elsewhere.flows_local ON CLUSTER `prod-1` ADD COLUMN IF NOT EXISTS n UInt64"; err != nil || len(changed) != 1 || changed[0] != want {
		t.Errorf("%q, %v, want %q", changed, err, want)
	}
	for _, bad := range []string{"", "a b", "a`", "a'", "1"} {
		if _, err := ClusterStatements("elsewhere", bad); err == nil {
			t.Errorf("cluster %q: accepted", bad)
		}
	}
	if _, err := ClusterStatements("no good", "prod"); err == nil {
		t.Error("database accepted")
	}
}

// TestClusterPlans makes the same tables with engines in place of the replicated and
// the distributed ones, which need a cluster, and has the engine plan the questions
// that the views are for. What a cluster makes of them is not shown by it.
func TestClusterPlans(t *testing.T) {
	sequential(t)
	s := open(t, engineOptions(t))
	statements, err := ClusterStatements(DefaultDatabase, "default")
	if err != nil {
		t.Fatal(err)
	}
	replicated := regexp.MustCompile(`Replicated(ReplacingMergeTree)\('[^']*', '[^']*'(?:, )?`)
	distributed := regexp.MustCompile("Distributed\\(`default`, csigscope, (\\w+), cityHash64\\(producer\\)\\)")
	for _, statement := range statements {
		statement = distributed.ReplaceAllString(statement, "Merge(csigscope, '^$1$$')")
		statement = strings.ReplaceAll(statement, " ON CLUSTER `default`", "")
		statement = replicated.ReplaceAllString(statement, "$1(")
		statement = strings.ReplaceAll(statement, " replicated_ded", " non_replicated_ded")
		if err := s.migrator.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	q := testQuestion()
	q.Step = q.Resolution
	for _, view := range []string{
		q.view(DefaultDatabase, "cells", false), q.view(DefaultDatabase, "cell_windows", true),
		q.view(DefaultDatabase, "location_windows", true), q.view(DefaultDatabase, "top_locations", false), q.totals(DefaultDatabase),
		q.call(DefaultDatabase, "coverage_windows", q.spanArgs(), q.stepArgs()), q.call(DefaultDatabase, "coverage_cells", q.signalArgs(), q.spanArgs()),
		q.call(DefaultDatabase, "group_windows", q.signalArgs(), q.spanArgs(), q.stepArgs(), "group = 'a'"),
		q.call(DefaultDatabase, "group_rhythm", q.signalArgs(), q.spanArgs(), q.stepArgs(), "group = 'a'"),
		s.recordView("tap_totals", q.From, q.To), s.recordView("finding_totals", q.From, q.To), s.flowView(&FlowQuestion{Signal: q.Signal, From: q.From, To: q.To, Resolution: q.Resolution}),
	} {
		if plan := readStrings(t, s, "EXPLAIN SELECT * FROM "+view); len(plan) == 0 {
			t.Errorf("%s: no plan", view)
		}
	}
}
