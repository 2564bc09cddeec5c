package store

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrCluster is the error for clusters that cannot be used: the server does not know the name, or
// the database was created for a single server and not for a cluster, or the reverse.
var ErrCluster = errors.New("cluster cannot be used")

// clusterName matches valid names of clusters: they become part of statements.
var clusterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

// CheckCluster returns an error if the name of a cluster is invalid.
func CheckCluster(name string) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("name cluster %q: expected letters, digits, _, - and ., at most 64", name)
	}
	return nil
}

// localSuffix marks the table of a shard behind a distributed one.
const localSuffix = "_local"

// shardsTable pins each producer's incarnation to a shard. Databases on one server lack it.
const shardsTable = "shards"

// layout describes where a database keeps its tables: on one server, or on the servers of a
// cluster.
//
// On a cluster, tables that grow with the traffic (partials and flows) are split: each shard
// holds part of partials_1s in partials_1s_local, and partials_1s reads all shards. All other
// tables are small, and each server has all of their rows, so that views join them locally.
// Statements that change rows, partitions or columns go to local tables; queries read the split
// ones.
type layout struct {
	database     string
	cluster      string // empty: one server
	unreplicated bool   // for tests without ZooKeeper: plain engines, one replica a shard
}

func (l layout) clustered() bool { return l.cluster != "" }

// split reports whether a table's rows are spread over shards. Each row has one producer.
func split(table string) bool { return strings.HasPrefix(table, "partials_") || table == "flows" }

// local is the name of a server's own table for a table of the schema.
func (l layout) local(table string) string {
	if l.clustered() && split(table) {
		return table + localSuffix
	}
	return table
}

var (
	tableHead  = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS ([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)`)
	alterHead  = regexp.MustCompile(`^ALTER TABLE ([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)`)
	viewHead   = regexp.MustCompile(`^CREATE OR REPLACE VIEW `)
	engineLine = regexp.MustCompile(`(?m)^ENGINE = ReplacingMergeTree(?:\((\w+)\))?$`)
)

// ClusterStatements returns the whole schema of each server of a cluster, in order. The servers
// define the macros {shard} and {replica}. Running the statements again changes nothing.
func ClusterStatements(database, cluster string) ([]string, error) {
	if err := CheckCluster(cluster); err != nil {
		return nil, err
	}
	return statements(layout{database: database, cluster: cluster})
}

// bookkeeping returns the statements that create the tables about the schema itself. Each server
// of a cluster has its own record of versions, since each is migrated separately.
func (l layout) bookkeeping() []string {
	list := []string{
		"CREATE DATABASE IF NOT EXISTS " + l.database,
		"CREATE TABLE IF NOT EXISTS " + l.database + "." + versionsTable + `
(
    version UInt32 COMMENT '0: the views',
    name String,
    checksum UInt64 COMMENT 'of the statements',
    at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(at)
ORDER BY version`,
	}
	if !l.clustered() {
		return list
	}
	engine, window := l.replicated("MergeTree", shardsTable, ""), "replicated_deduplication_window"
	if l.unreplicated {
		window = "non_" + window
	}
	return append(list, "CREATE TABLE IF NOT EXISTS "+l.database+"."+shardsTable+`
(
    producer UInt64,
    incarnation UInt64,
    shard UInt32 COMMENT 'shard_num in system.clusters; the first row of a producer and incarnation holds',
    at DateTime64(9, 'UTC') DEFAULT now64(9, 'UTC')
)
`+engine+`
ORDER BY (producer, incarnation)
SETTINGS `+window+` = 10000
COMMENT 'the shard that has all rows of a producer and incarnation'`)
}

// replicated is the engine of a table on a server of the cluster.
func (l layout) replicated(engine, table, arguments string) string {
	if l.unreplicated {
		return "ENGINE = " + engine + "(" + arguments + ")"
	}
	path, replica := "all", "{shard}-{replica}"
	if split(table) {
		path, replica = "{shard}", "{replica}"
	}
	if arguments != "" {
		arguments = ", " + arguments
	}
	return fmt.Sprintf("ENGINE = Replicated%s('/clickhouse/tables/%s/%s/%s', '%s'%s)", engine, path, l.database, l.local(table), replica, arguments)
}

// translate turns a statement for one server into those for each server of the cluster.
func (l layout) translate(statement string) ([]string, error) {
	if !l.clustered() {
		return []string{statement}, nil
	}
	switch {
	case viewHead.MatchString(statement):
		// Subqueries over a split table run once, not on every shard.
		const setting = "\nSETTINGS do_not_merge_across_partitions_select_final = 1"
		return []string{strings.Replace(statement, setting, setting+", distributed_product_mode = 'global'", 1)}, nil
	case tableHead.MatchString(statement):
		return l.translateTable(statement, tableHead.FindStringSubmatch(statement)[2])
	case alterHead.MatchString(statement):
		name := alterHead.FindStringSubmatch(statement)[2]
		list := []string{alterHead.ReplaceAllString(statement, "ALTER TABLE ${1}."+l.local(name))}
		if split(name) { // the distributed table has its own columns, and no rows
			list = append(list, "CREATE OR REPLACE TABLE "+l.distributed(name))
		}
		return list, nil
	}
	return nil, fmt.Errorf("translate for a cluster: unknown statement %.60q", statement)
}

func (l layout) translateTable(statement, name string) ([]string, error) {
	found := engineLine.FindStringSubmatch(statement)
	if found == nil {
		return nil, fmt.Errorf("translate for a cluster: table %s has no replicated engine", name)
	}
	// A literal replacement: $ has no meaning in it.
	statement = engineLine.ReplaceAllLiteralString(statement, l.replicated("ReplacingMergeTree", name, found[1]))
	if !l.unreplicated {
		statement = strings.ReplaceAll(statement, "non_replicated_deduplication_window", "replicated_deduplication_window")
	}
	statement = tableHead.ReplaceAllString(statement, "CREATE TABLE IF NOT EXISTS ${1}."+l.local(name))
	if !split(name) {
		return []string{statement}, nil
	}
	return []string{statement, "CREATE TABLE IF NOT EXISTS " + l.distributed(name)}, nil
}

// distributed is the head of the statement that creates the table over all shards. It has no
// sharding key, so ClickHouse refuses inserts into it, which could split an identity.
func (l layout) distributed(table string) string {
	return fmt.Sprintf("%[1]s.%[2]s AS %[1]s.%[3]s\nENGINE = Distributed(`%[4]s`, %[1]s, %[3]s)", l.database, table, l.local(table), l.cluster)
}
