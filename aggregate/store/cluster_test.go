package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testCluster is the cluster of tests. The engine does not listen on the port in its
// configuration, but recognizes itself as the shard on that port and uses no network.
const (
	testCluster = "prod"
	thisServer  = 19000
)

// onCluster reports whether a test runs under TestOnCluster.
func onCluster(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestOnCluster/") }

// clusterConfig is the configuration file of the engine at a port. It names the servers of
// clusters by their ports, shard by shard: of testCluster, testCluster2 and so on.
func clusterConfig(t testing.TB, here int, clusters ...[][]int) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "<clickhouse><tcp_port>%d</tcp_port><remote_servers>\n", here)
	name := testCluster
	for i, shards := range clusters {
		fmt.Fprintf(&text, "<%s>\n", name)
		for _, replicas := range shards {
			text.WriteString("<shard>")
			for _, port := range replicas {
				fmt.Fprintf(&text, "<replica><host>127.0.0.1</host><port>%d</port></replica>", port)
			}
			text.WriteString("</shard>\n")
		}
		fmt.Fprintf(&text, "</%s>\n", name)
		name = fmt.Sprint(testCluster, i+2)
	}
	text.WriteString("</remote_servers></clickhouse>\n")
	path := filepath.Join(t.TempDir(), "config.xml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOnCluster runs tests of one server with the schema of a one-shard cluster, so that all
// queries go through its distributed tables.
func TestOnCluster(t *testing.T) {
	sequential(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Trim", TestTrim},
		{"TrimRecords", TestTrimRecords},
		{"TrimmedStaysTrimmed", TestTrimmedStaysTrimmed},
		{"Retention", TestRetention},
		{"EndKilled", TestEndKilled},
		{"EndEarlier", TestEndEarlier},
		{"OutboxOnEngine", TestOutboxOnEngine},
		{"Present", TestPresent},
		{"VerifyRuns", TestVerifyRuns},
		{"VerifyExpired", TestVerifyExpired},
		{"VerifyRecords", TestVerifyRecords},
		{"VerifyFlows", TestVerifyFlows},
		{"CoverageWindows", TestCoverageWindows},
		{"CoverageCells", TestCoverageCells},
		{"CountProducers", TestCountProducers},
		{"ResolutionOfProcesses", TestResolutionOfProcesses},
		{"Missing", TestMissing},
		{"ReplaysSupersede", TestReplaysSupersede},
		{"PinnedNames", TestPinnedNames},
		{"Extent", TestExtent},
		{"Distribution", TestDistribution},
		{"Flows", TestFlows},
		{"GroupSteps", TestGroupSteps},
		{"Codes", TestCodes},
		{"FlowsStored", TestFlowsStored},
		{"ServerComesLater", TestServerComesLater},
	} {
		t.Run(test.name, test.run)
	}
}

// TestClusterStatements lets the engine parse the statements of a replicated cluster.
func TestClusterStatements(t *testing.T) {
	sequential(t)
	s := openStore(t)
	statements, err := ClusterStatements("elsewhere", "prod-1")
	if err != nil {
		t.Fatal(err)
	}
	created, replaced := 0, 0
	for _, statement := range statements {
		if tree := strings.Join(readStrings(t, s, "EXPLAIN AST "+statement), "\n"); !strings.HasPrefix(tree, "Create") && !strings.HasPrefix(tree, "Alter") {
			t.Errorf("%s:\n%s", statement, tree)
		}
		if strings.Contains(statement, "\nENGINE = ReplacingMergeTree") && !strings.Contains(statement, versionsTable) {
			t.Errorf("not replicated:\n%s", statement)
		}
		switch distributed := strings.Contains(statement, "Distributed("); {
		case distributed && strings.HasPrefix(statement, "CREATE OR REPLACE"):
			replaced++
		case distributed:
			created++
		}
	}
	// Migrations added three columns to partials (samples, unjudged and evidence), and sampled to flows.
	if created != numResolutionTables+1 || replaced != 3*numResolutionTables+1 {
		t.Errorf("%d distributed tables are created and %d replaced, want %d and %d", created, replaced, numResolutionTables+1, 3*numResolutionTables+1)
	}
	changed, err := layout{database: "elsewhere", cluster: "prod-1"}.translate("ALTER TABLE elsewhere.flows ADD COLUMN IF NOT EXISTS n UInt64")
	want := "ALTER TABLE elsewhere.flows_local ADD COLUMN IF NOT EXISTS n UInt64; CREATE OR REPLACE TABLE elsewhere.flows AS elsewhere.flows_local\nENGINE = Distributed(`prod-1`, elsewhere, flows_local)"
	if got := strings.Join(changed, "; "); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
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

// TestClusterIsNamed: a database of a cluster opens only with the cluster's name, any other only
// without one, and the server must know the name.
func TestClusterIsNamed(t *testing.T) {
	sequential(t)
	c := startServers(t, [][]int{{thisServer}})
	named := c.options(t)
	alone, unknown := named, named
	alone.Cluster, unknown.Cluster = "", "other"
	refused := func(when string, o Options) {
		t.Helper()
		s, err := Open(t.Context(), o)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, ErrCluster) {
			t.Errorf("%s: %v, want ErrCluster", when, err)
		}
	}
	refused("a cluster that the server does not know", unknown)
	openCluster(t, named)
	refused("a cluster's database as one server's", alone)
	alone.Database = "alone"
	if err := open(t, alone).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	named.Database = "alone"
	refused("one server's database as a cluster's", named)
}

// TestClusterServersAway: schema and retention are set on every server that answers, as long as
// each shard has one; dropping a database requires all servers.
func TestClusterServersAway(t *testing.T) {
	sequential(t)
	const replica, other = 19001, 19002
	c := startServers(t, [][]int{{thisServer, replica}, {other}})
	s := open(t, c.options(t))
	tables := func(port int) string {
		return c.on(t, port, "SELECT toString(count()) FROM system.tables WHERE database = 'csigscope'")[0]
	}
	c.doors[other].shut.Store(true)
	c.doors[replica].shut.Store(true)
	if err := s.Migrate(t.Context()); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "shard 2") {
		t.Errorf("without a shard: %v, want ErrUnreachable of shard 2", err)
	}
	c.doors[other].shut.Store(false)
	keep := Retention{3 * time.Hour, 0, 0}
	if err := errors.Join(s.Migrate(t.Context()), s.SetRetention(t.Context(), keep)); err != nil {
		t.Fatal(err)
	}
	status, err := s.Status(t.Context())
	if err != nil || !status[0].Current || tables(thisServer) != tables(other) {
		t.Errorf("status %+v, %v, and %s and %s tables", status, err, tables(thisServer), tables(other))
	}
	if err := s.Drop(t.Context()); !errors.Is(err, ErrUnreachable) || tables(thisServer) == "0" {
		t.Errorf("dropped while a server is away: %v, %s tables are left", err, tables(thisServer))
	}
	c.doors[replica].shut.Store(false)
	if status, err := s.Status(t.Context()); err != nil || status[0].Current {
		t.Errorf("status %+v, %v, want nothing applied on the replica", status, err)
	}
	if err := s.Migrate(t.Context()); err != nil || tables(replica) != tables(thisServer) {
		t.Errorf("%v, %s tables on the replica, want %s", err, tables(replica), tables(thisServer))
	}
	// The replica catches up on changes made while it was unreachable.
	for _, port := range []int{thisServer, replica, other} {
		if ttl := c.on(t, port, "SELECT create_table_query FROM system.tables WHERE name = 'partials_fine_local'"); !strings.Contains(ttl[0], "toIntervalHour(3)") {
			t.Errorf("server %d: %s", port, ttl)
		}
	}
	if err := s.Drop(t.Context()); err != nil {
		t.Error(err)
	}
	for _, port := range []int{thisServer, replica, other} {
		if n := tables(port); n != "0" {
			t.Errorf("server %d has %s tables after the drop", port, n)
		}
	}
	if err := s.Drop(t.Context()); !errors.Is(err, ErrNoSchema) {
		t.Errorf("a second time: %v, want ErrNoSchema", err)
	}
}
