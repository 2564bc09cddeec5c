package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) { chdbtest.Main(m) }

// TestUsers runs the script that creates users with a fake client, and parses its statements with
// the engine. The embedded engine cannot manage users, so the statements are not executed.
func TestUsers(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told.sql")
	client := "#!/bin/sh\ntest \"$*\" = '--host db.example --user admin --multiquery' && test \"$CLICKHOUSE_PASSWORD\" = top || exit 1\ncat >>" + told + "\n"
	if err := os.WriteFile(filepath.Join(dir, "clickhouse-client"), []byte(client), 0o700); err != nil {
		t.Fatal(err)
	}
	environment := []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "CLICKHOUSE_HOST=db.example", "CLICKHOUSE_USER=admin", "TRIES=1"}
	const quoted = `it's "secret"; DROP`
	passwords := []string{"PASSWORD_OWNER=" + quoted, "PASSWORD_WRITER=w", "PASSWORD_PAGE=p", "PASSWORD_GRAFANA=g"}
	run := func(more ...string) error {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "clickhouse/users.sh")
		cmd.Env = slices.Concat(environment, more)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := run(append(passwords, "CLICKHOUSE_PASSWORD=wrong")...); err == nil {
		t.Error("a server that does not answer is no failure")
	}
	if err := run("CLICKHOUSE_PASSWORD=top", "PASSWORD_OWNER=", "PASSWORD_WRITER=w", "PASSWORD_PAGE=p", "PASSWORD_GRAFANA=g"); err == nil {
		t.Error("an owner without a password is made")
	}
	if err := os.Remove(told); err != nil {
		t.Fatal(err)
	}
	if err := run(append(passwords, "CLICKHOUSE_PASSWORD=top")...); err != nil {
		t.Fatal(err)
	}
	text := string(read(t, told))
	if strings.Contains(text, "secret") {
		t.Error("a password is in the statements for the server")
	}
	engine := clickhouse.OpenDB(chdbtest.Start(t).ClickHouseOptions(chdb.RoleReader))
	defer engine.Close()
	made := make(map[string]bool)
	for statement := range strings.SplitSeq(text, ";") {
		statement = strings.TrimSpace(statement)
		if statement == "" {
			continue
		}
		var ast string
		if err := engine.QueryRowContext(t.Context(), "EXPLAIN AST "+statement).Scan(&ast); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
		if rest, ok := strings.CutPrefix(statement, "CREATE USER IF NOT EXISTS "); ok {
			user, _, _ := strings.Cut(rest, " ")
			made[user] = true
		}
	}
	for user := range users {
		if !made[user] {
			t.Errorf("%s is not made", user)
		}
	}
	if len(made) != len(users) {
		t.Errorf("made %v, want %v", made, users)
	}
}
