package store

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// clusterName is what a cluster may be called, and a placeholder for a macro.
var clusterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// localSuffix marks the table of a shard behind a distributed one.
const localSuffix = "_local"

var (
	tableHead  = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS ([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)`)
	alterHead  = regexp.MustCompile(`^ALTER TABLE ([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)`)
	viewHead   = regexp.MustCompile(`^CREATE OR REPLACE VIEW ([A-Za-z0-9_]+\.[A-Za-z0-9_]+)`)
	engineLine = regexp.MustCompile(`(?m)^ENGINE = ReplacingMergeTree(?:\((\w+)\))?$`)
)

// ClusterStatements is the whole schema as it is made on every server of a cluster,
// whose servers know the macros {shard} and {replica}.
//
// Partials and flows lie in shards: partials_1s_local on each, with its replicas, and
// partials_1s over all of them. FINAL counts a row once within a shard only, so all rows of a
// producer belong on the shard that its hash chooses: cityHash64(producer) modulo the
// total weight of the shards, as the distributed table has it. What writes does so to
// the _local table of that shard with insert_quorum = 'auto'; an insert into the
// distributed table is right with distributed_foreground_insert = 1 alone. The other
// tables are small, and whole on every server: the views join them there.
//
// Nothing of this was run on a cluster: only that an engine takes it was.
func ClusterStatements(database, cluster string) ([]string, error) {
	if !clusterName.MatchString(cluster) {
		return nil, fmt.Errorf("name cluster %q: expected letters, digits, _, - and ., at most 64", cluster)
	}
	statements, err := Statements(database)
	if err != nil {
		return nil, err
	}
	c := clustered{database: database, cluster: cluster}
	var list []string
	for _, s := range statements {
		more, err := c.translate(s)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

type clustered struct{ database, cluster string }

func (c clustered) on() string { return " ON CLUSTER `" + c.cluster + "`" }

// sharded tells the tables that grow with the traffic. Each row is of one producer.
func sharded(table string) bool { return strings.HasPrefix(table, "partials_") || table == "flows" }

// translate makes a statement of one server into those of a cluster.
func (c clustered) translate(s string) ([]string, error) {
	switch {
	case strings.HasPrefix(s, "CREATE DATABASE "):
		return []string{s + c.on()}, nil
	case viewHead.MatchString(s):
		// Subqueries over the distributed table run once, not on every shard.
		s = viewHead.ReplaceAllString(s, "${0}"+c.on())
		const setting = "\nSETTINGS do_not_merge_across_partitions_select_final = 1"
		return []string{strings.Replace(s, setting, setting+", distributed_product_mode = 'global'", 1)}, nil
	case tableHead.MatchString(s):
		return c.table(s, tableHead.FindStringSubmatch(s)[2])
	case alterHead.MatchString(s):
		name := alterHead.FindStringSubmatch(s)[2]
		if sharded(name) {
			name += localSuffix
		}
		return []string{alterHead.ReplaceAllString(s, "ALTER TABLE ${1}."+name+c.on())}, nil
	}
	return nil, fmt.Errorf("translate for a cluster: unknown statement %.60q", s)
}

func (c clustered) table(s, name string) ([]string, error) {
	found := engineLine.FindStringSubmatch(s)
	if found == nil {
		return nil, fmt.Errorf("translate for a cluster: table %s has no replicated engine", name)
	}
	local, path, replica := name, "all", "{shard}-{replica}"
	if sharded(name) {
		local, path, replica = name+localSuffix, "{shard}", "{replica}"
	}
	version := ""
	if found[1] != "" {
		version = ", " + found[1]
	}
	engine := fmt.Sprintf("ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/%s/%s/%s', '%s'%s)", path, c.database, local, replica, version)
	// Not as a template: $ has no meaning in it.
	s = engineLine.ReplaceAllLiteralString(s, engine)
	s = strings.ReplaceAll(s, "non_replicated_deduplication_window", "replicated_deduplication_window")
	s = tableHead.ReplaceAllString(s, "CREATE TABLE IF NOT EXISTS ${1}."+local+c.on())
	if !sharded(name) {
		return []string{s}, nil
	}
	over := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s.%s%s AS %[1]s.%[4]s\nENGINE = Distributed(`%[5]s`, %[1]s, %[4]s, cityHash64(producer))",
		c.database, name, c.on(), local, c.cluster)
	return []string{s, over}, nil
}

// ErrOldServer is the error of servers that lack what the schema needs.
var ErrOldServer = errors.New("server too old")

// version is a server's, by which features are told apart.
type version struct{ major, minor int }

// The oldest server that the views run on, and one that has all that is used where
// present.
var (
	oldestServer  = version{24, 8}
	currentServer = version{26, 7}
)

func (v version) before(o version) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// parseVersion reads the answer to SELECT version(), such as "26.7.2.1", and refuses
// servers that are too old.
func parseVersion(s string) (version, error) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return version{}, fmt.Errorf("read server version %q: expected MAJOR.MINOR", s)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return version{}, fmt.Errorf("read server version %q: %w", s, err)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return version{}, fmt.Errorf("read server version %q: %w", s, err)
	}
	v := version{major, minor}
	if v.before(oldestServer) {
		return v, fmt.Errorf("use server %s: %w: need ClickHouse %s or later, or --store embedded", s, ErrOldServer, oldestServer)
	}
	return v, nil
}
