package chdb

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseStatement(t *testing.T) {
	for _, tt := range []struct {
		sql  string
		want statement
	}{
		{"", statement{}},
		{";", statement{}},
		{"SELECT 1", statement{text: "SELECT 1", isSelect: true}},
		{"SELECT 1 ; ", statement{text: "SELECT 1 ", isSelect: true}},
		{"select 1 format JSON", statement{text: "select 1 ", format: "JSON", isSelect: true}},
		{"SELECT 1 FORMAT CSV SETTINGS max_threads = 1", statement{text: "SELECT 1  SETTINGS max_threads = 1", format: "CSV", isSelect: true}},
		{"((SELECT 1) UNION ALL (SELECT 2 FORMAT x))", statement{text: "((SELECT 1) UNION ALL (SELECT 2 FORMAT x))", isSelect: true}},
		{"WITH 1 AS a SELECT a", statement{text: "WITH 1 AS a SELECT a", isSelect: true}},
		{"SELECT 'x FORMAT CSV'", statement{text: "SELECT 'x FORMAT CSV'", isSelect: true}},
		{"SELECT 'it''s \\' FORMAT CSV'", statement{text: "SELECT 'it''s \\' FORMAT CSV'", isSelect: true}},
		{"SELECT $a$ ' $a$ FORMAT CSV", statement{text: "SELECT $a$ ' $a$ ", format: "CSV", isSelect: true}},
		{"SELECT 1 AS a$x$ FORMAT CSV -- $x$", statement{text: "SELECT 1 AS a$x$  -- $x$", format: "CSV", isSelect: true}},
		{"SELECT 1 AS $x FORMAT CSV", statement{text: "SELECT 1 AS $x ", format: "CSV", isSelect: true}},
		{"SELECT “a FORMAT CSV”", statement{text: "SELECT “a FORMAT CSV”", isSelect: true}},
		{"SELECT ‘ FORMAT CSV", statement{text: "SELECT ‘ FORMAT CSV", isSelect: true}},
		{"SELECT 1 -- FORMAT CSV", statement{text: "SELECT 1 -- FORMAT CSV", isSelect: true}},
		{"SELECT 1 FORMAT CSV -- done", statement{text: "SELECT 1  -- done", format: "CSV", isSelect: true}},
		{"/* FORMAT CSV */ SELECT 1", statement{text: "/* FORMAT CSV */ SELECT 1", isSelect: true}},
		{"SELECT format", statement{text: "SELECT format", isSelect: true}},
		{"SELECT format('{}', 'a')", statement{text: "SELECT format('{}', 'a')", isSelect: true}},
		{"SHOW TABLES", statement{text: "SHOW TABLES"}},
		{"INSERT INTO t (a, b) FORMAT Native", statement{text: "INSERT INTO t (a, b) ", format: "Native", insert: true}},
		{"insert into t values", statement{text: "insert into t ", insert: true, values: true}},
		{"INSERT INTO t VALUES (1)", statement{text: "INSERT INTO t VALUES (1)", insert: true}},
		{"SELECT 'unended FORMAT CSV", statement{text: "SELECT 'unended FORMAT CSV", isSelect: true}},
		{"SELECT `a\\` FORMAT CSV", statement{text: "SELECT `a\\` FORMAT CSV", isSelect: true}},
	} {
		got := parseStatement(tt.sql)
		if got.nesting = 0; got != tt.want { // TestNesting checks it
			t.Errorf("%q: got %+v, want %+v", tt.sql, got, tt.want)
		}
	}
}

func FuzzParseStatement(f *testing.F) {
	for _, sql := range []string{"SELECT 1 FORMAT CSV", "INSERT INTO t VALUES", "SELECT $a$'$a$ -- \n;", "/* '", "`\\"} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		end := 0
		for _, tok := range tokenize(sql) {
			if tok.start < end || tok.end <= tok.start || tok.end > len(sql) {
				t.Fatalf("token %+v after byte %d of %d", tok, end, len(sql))
			}
			end = tok.end
		}
		s := parseStatement(sql)
		if len(s.text) > len(sql) {
			t.Fatalf("statement %q is longer than %q", s.text, sql)
		}
		if s.format != "" && (!strings.Contains(sql, s.format) || strings.ContainsAny(s.format, " '\"`();")) {
			t.Fatalf("format %q of %q", s.format, sql)
		}
	})
}

func TestQuoting(t *testing.T) {
	if got, want := quoteIdentifier("a`b\\c"), "`a\\`b\\\\c`"; got != want {
		t.Errorf("identifier: got %s, want %s", got, want)
	}
	if got, want := quoteString(`a'b\c`), `'a\'b\\c'`; got != want {
		t.Errorf("string: got %s, want %s", got, want)
	}
	if got, want := escapeField("a\tb\n\\\x00"), `a\tb\n\\\0`; got != want {
		t.Errorf("field: got %s, want %s", got, want)
	}
}

func TestGuardTree(t *testing.T) {
	tables := tableFunctions{"url": false, "format": true}
	for _, tt := range []struct {
		tree    string
		refused bool
	}{
		{"SelectQuery (children 1)\n  Function count (children 1)\n", false},
		{"SelectQuery (children 1)\n  Function file (children 1)\n", true},
		{"SelectQuery (children 1)\n  Identifier file (alias f)\n", true},
		{"SelectQuery (children 1)\n  Literal 'Function file'\n", false},
		{"SelectQuery (children 1)\n  Function aiGenerate (children 1)\n", true},
		{"DescribeQuery (children 1)\n  TableIdentifier t\n", false},
		{"DescribeQuery (children 1)\n  Function url (children 1)\n", true},
		{"Asterisk (children 1)\n ColumnsApplyTransformer", true},
		{"TableExpression (children 1)\n Function URL (children 1)\n", true},
		{"ExpressionList (children 1)\n Function url (children 1)\n", true},
		{"TableExpression (children 1)\n Function format (children 1)\n", true},
		{"ExpressionList (children 1)\n Function format (children 1)\n", false},
		{"TableExpression (children 1)\n Function some_view (children 1)\n", false},
	} {
		if err := tables.check(tt.tree); (err != nil) != tt.refused {
			t.Errorf("%q: got %v, want refused: %v", tt.tree, err, tt.refused)
		}
	}
}

func TestParseException(t *testing.T) {
	for _, tt := range []struct {
		text string
		code int
		want string
	}{
		{"Code: 60. DB::Exception: no table", 60, "Code: 60. DB::Exception: no table"},
		{"no code", codeUnknown, "Code: 1002. DB::Exception: no code"},
		{"Code: x. y", codeUnknown, "Code: 1002. DB::Exception: Code: x. y"},
		{"Code: -1. y", codeUnknown, "Code: 1002. DB::Exception: Code: -1. y"},
	} {
		if got := parseException(tt.text); got.code != tt.code || got.text != tt.want {
			t.Errorf("%q: got %d %q, want %d %q", tt.text, got.code, got.text, tt.code, tt.want)
		}
	}
}

// A block of two columns, one row, as the engine writes it.
const nativeBlock = "\x02\x01\x01n\x05UInt8\x07\x01s\x06String\x03abc"

func TestConvertNative(t *testing.T) {
	const info = "\x01\x00\x02\xff\xff\xff\xff\x00"
	for _, tt := range []struct {
		name, in, want string
		revision       uint64
	}{
		{"nothing", "", "", 54460},
		{"one block", nativeBlock, info + "\x02\x01\x01n\x05UInt8\x00\x07\x01s\x06String\x00\x03abc", 54460},
		{"two blocks", nativeBlock + nativeBlock, strings.Repeat(info+"\x02\x01\x01n\x05UInt8\x07\x01s\x06String\x03abc", 2), 54000},
		{"no rows", "\x01\x00\x01s\x16LowCardinality(String)", info + "\x01\x00\x01s\x16LowCardinality(String)\x00", 54460},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := convertNative(&out, strings.NewReader(tt.in), tt.revision); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for cut := 1; cut < len(nativeBlock); cut++ {
		if err := convertNative(io.Discard, strings.NewReader(nativeBlock[:cut]), 54460); err == nil {
			t.Errorf("cut at byte %d: no error", cut)
		}
	}
}

func TestFindLibrary(t *testing.T) {
	root := t.TempDir()
	executable := filepath.Join(root, "bin", "csigscope")
	env := map[string]string{"XDG_DATA_HOME": filepath.Join(root, "share")}
	paths := libraryPaths(func(name string) string { return env[name] }, executable)
	if len(paths) != 4 {
		t.Fatalf("got places %v, want four", paths)
	}
	// From the last path to the first: each library found takes precedence over later paths.
	for i := len(paths) - 1; i >= 0; i-- {
		if err := os.MkdirAll(filepath.Dir(paths[i]), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(paths[i], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := findLibrary("", func(name string) string { return env[name] }, executable)
		if err != nil || got != paths[i] {
			t.Errorf("got %s (%v), want %s", got, err, paths[i])
		}
	}
	env[LibraryEnv] = filepath.Join(root, "elsewhere.so")
	if _, err := findLibrary("", func(name string) string { return env[name] }, executable); !errors.Is(err, ErrNoEngine) {
		t.Errorf("a named library that is missing: got %v, want ErrNoEngine", err)
	}
}

func TestLogIsBounded(t *testing.T) {
	f := folder{t.TempDir()}
	file, err := openLog(f)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	line := strings.Repeat("x", 1023) + "\n"
	for range maxLog/len(line) + 1 {
		if _, err := file.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := boundLog(file); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("last\n"); err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil || info.Size() != keptLog+5 {
		t.Errorf("got %d bytes (%v), want %d", info.Size(), err, keptLog+5)
	}
	if got := lastLines(f, info.Size()-5); got != "last" {
		t.Errorf("got %q, want last", got)
	}
}
