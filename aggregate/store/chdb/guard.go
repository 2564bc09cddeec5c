package chdb

import (
	"maps"
	"slices"
	"strings"
	"unsafe"
)

// deniedFunctions reach outside the engine in spite of readonly = 1. That setting stops all table
// functions that do, but not these functions.
var deniedFunctions = map[string]bool{
	"file": true, "eval": true, "catboostevaluate": true,
	"aigenerate": true, "aiembed": true, "aiclassify": true, "aiextract": true, "aitranslate": true,
}

// harmlessTables are the table functions that produce rows from their arguments, or from tables
// of the engine.
var harmlessTables = []string{
	"numbers", "numbers_mt", "zeros", "zeros_mt", "primes", "generateseries", "generate_series", "generaterandom",
	"values", "sqlstandardvalues", "null", "view", "merge",
}

// tableFunctions are the engine's table functions that readers must not call, in lower case, and
// whether a plain function has the same name. Any other name called like a table is a view with
// parameters.
type tableFunctions map[string]bool

// readTableFunctions asks the engine for its table functions, so that new ones in a later version
// are refused until they are reviewed.
func readTableFunctions(s *session) (tableFunctions, error) {
	const sql = `SELECT DISTINCT lower(t.name), t.lower IN (SELECT lower(name) FROM system.functions)
		FROM (SELECT name, lower(name) AS lower FROM system.table_functions) AS t`
	denied := make(tableFunctions)
	err := s.query(sql, "TabSeparated", nil, func(rows []byte) error {
		for line := range strings.Lines(string(rows)) {
			name, shared, _ := strings.Cut(strings.TrimSpace(line), "\t")
			denied[name] = shared == "1"
		}
		return nil
	})
	maps.DeleteFunc(denied, func(name string, _ bool) bool { return slices.Contains(harmlessTables, name) })
	return denied, err
}

// guard refuses statements that a reader must not run: anything but one statement without side
// effects, and anything that reads files or the network. It asks the engine's own parser, so that
// no spelling gets past it.
func (t tableFunctions) guard(s *session, sql string, bound *params) error {
	class, count := s.classify(sql)
	switch {
	case class == classUnknown:
		return syntaxError(s, sql)
	case count != 1:
		return newException(codeReadonly, "a reader runs one statement at a time, got %d. (READONLY)", count)
	case class != classReadOnly:
		return newException(codeReadonly, "a reader cannot run a statement that changes data, settings or the session. (READONLY)")
	}
	// Bound values are part of the tree: one may stand for a name.
	return s.query("EXPLAIN AST "+sql, "TSVRaw", bound, func(tree []byte) error { return t.check(string(tree)) })
}

// syntaxError returns the reason why the parser refused a text. It only parses the text again, as
// a string, since a prefix of it might run.
func syntaxError(s *session, sql string) error {
	bound := &params{names: []string{"sql"}, values: []string{escapeField(sql)}}
	err := s.query("SELECT formatQuery({sql:String})", "TabSeparated", bound, func([]byte) error { return nil })
	if err != nil {
		return withoutScope(asException(err))
	}
	return newException(codeSyntax, "a reader cannot run this kind of statement. (SYNTAX_ERROR)")
}

// withoutScope drops the engine's quotation of formatQuery, which repeats the whole text.
func withoutScope(e *exception) *exception {
	before, after, found := strings.Cut(e.text, ": In scope SELECT formatQuery(")
	if !found {
		return e
	}
	if at := strings.LastIndex(after, ". ("); at >= 0 {
		before += after[at:]
	}
	return &exception{code: e.code, text: before}
}

// check checks a statement's syntax tree, one node per line.
func (t tableFunctions) check(tree string) error {
	describe, previous := false, ""
	for line := range strings.Lines(tree) {
		node, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(rest, " ")
		lower := strings.ToLower(name)
		// The first child of a table expression is its table.
		fromTable := previous == "TableExpression"
		previous = node
		isTable, sharesName := t.denied(lower)
		switch {
		case node == "DescribeQuery":
			describe = true
		// The engine checks the clause of the statement, not those of subqueries.
		case node == "Set":
			return newException(codeReadonly, "a reader cannot change settings: leave the SETTINGS clause out. (READONLY)")
		case node == "Function" && describe:
			return newException(codeReadonly, "a reader cannot describe table function %s. (READONLY)", name)
		case node == "Function" && isTable && (fromTable || !sharesName):
			return newException(codeReadonly, "a reader cannot use table function %s. (READONLY)", name)
		// A name can stand for a function without being called: arrayMap(file, …).
		case (node == "Function" || node == "Identifier") && deniedFunctions[lower]:
			return newException(codeReadonly, "a reader cannot use function %s. (READONLY)", name)
		// The tree does not show which function APPLY names.
		case node == "ColumnsApplyTransformer":
			return newException(codeReadonly, "a reader cannot use APPLY. (READONLY)")
		}
	}
	return nil
}

func (t tableFunctions) denied(lower string) (isTable, sharesName bool) {
	sharesName, isTable = t[lower]
	return isTable, sharesName
}

// Classes of statements, as the engine numbers them.
const (
	classReadOnly = 0
	classUnknown  = 4
)

// classify asks the engine's parser for the class of sql, and for the number of its statements.
func (s *session) classify(sql string) (class, count uint32) {
	analysis := struct{ size, count, flags, class uint32 }{size: uint32(unsafe.Sizeof([4]uint32{}))}
	var pins cStrings
	defer pins.unpin()
	pins.pinner.Pin(&analysis)
	state := s.api.classify(s.conn(), pins.bytes(sql), uintptr(len(sql)), nil, 0, unsafe.Pointer(&analysis))
	if state != 0 {
		return classUnknown, 0
	}
	return analysis.class, analysis.count
}
