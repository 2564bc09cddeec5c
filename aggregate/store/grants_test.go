package store

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestGrantsInTheEngine runs the statements if the engine manages access, and otherwise lets it
// parse them.
func TestGrantsInTheEngine(t *testing.T) {
	sequential(t)
	s := openStore(t)
	for _, access := range []Access{AccessReader, AccessWriter, AccessOwner} {
		g := Grants{User: "grafana it's", Access: access, Cluster: true, Password: "secret", Salt: bytes.Repeat([]byte{0xab}, 16)}
		statements, err := g.Statements()
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for _, statement := range statements {
			if strings.Contains(statement, "secret") {
				t.Errorf("the password is in %s", statement)
			}
			readStrings(t, s, "EXPLAIN AST "+statement)
			const unknownRole = 511 // because the previous statement could not create it
			switch err := s.migrator.Exec(t.Context(), statement); exceptionCode(err) {
			case codeNotEnoughRights, unknownRole:
			case 0:
				if err != nil {
					t.Error(err)
				}
				ran++
			default:
				t.Errorf("%s: %v", statement, err)
			}
		}
		t.Logf("%s: %d of %d statements ran, the rest was parsed: the engine manages no users", access, ran, len(statements))
	}
}

func TestGrantStatements(t *testing.T) {
	g := Grants{User: "grafana", Database: "db1"}
	statements, err := g.Statements()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(statements, ";\n")
	for _, want := range []string{
		"GRANT SELECT ON db1.* TO `db1_reader`", "max_execution_time = 30 MIN 1 MAX 30", "max_memory_usage = 4294967296 MIN 1 MAX 4294967296",
		"result_overflow_mode = 'throw' CONST", "readonly = 2", "GRANT `db1_reader` TO `grafana`", "MAX queries = 36000",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"INSERT", "CREATE USER", "*.*", "system.clusters"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q in:\n%s", unwanted, text)
		}
	}
	g.Cluster, g.Access = true, AccessOwner
	statements, err = g.Statements()
	if text := strings.Join(statements, ";\n"); err != nil || !strings.Contains(text, "GRANT SELECT ON system.clusters TO `db1_owner`") || !strings.Contains(text, "GRANT REMOTE ON *.* TO `db1_owner`") {
		t.Errorf("owner on a cluster: %v:\n%s", err, text)
	}
	g = Grants{User: "grafana", Database: "db1"}
	// The server computes the same hash: SHA256(password + salt), both in hex.
	g.Password, g.Salt = "secret", bytes.Repeat([]byte{0xab}, 16)
	statements, err = g.Statements()
	if err != nil {
		t.Fatal(err)
	}
	const want = "BY 'A1B9D063E68BF7AB0A1D7F5C4063ABE9B6B4A706D45113347C98E04FB36E9350' SALT 'ABABABABABABABABABABABABABABABAB'"
	if !strings.Contains(strings.Join(statements, "\n"), want) {
		t.Errorf("no %s in %s", want, statements)
	}
	for i, bad := range []Grants{
		{},
		{User: "a`b"},
		{User: "a\\"},
		{User: "a\n"},
		{User: strings.Repeat("a", 129)},
		{User: "a", Database: "x.y"},
		{User: "csigscope_reader"},
		{User: "a", Access: "root"},
		{User: "a", Password: "p"},
		{User: "a", Password: "p", Salt: make([]byte, 15)},
	} {
		if s, err := bad.Statements(); err == nil {
			t.Errorf("%d: accepted: %s", i, fmt.Sprint(s))
		}
	}
}
