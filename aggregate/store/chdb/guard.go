package chdb

import (
	"strings"
	"unsafe"
)

// deniedFunctions reach outside the engine although readonly = 1 is set. The
// setting stops every table function that does; these are what it lets through.
var deniedFunctions = map[string]bool{
	"file": true, "eval": true, "catboostevaluate": true,
	"aigenerate": true, "aiembed": true, "aiclassify": true, "aiextract": true, "aitranslate": true,
}

// guard refuses what a reader must not run: anything that is not one statement
// that leaves no trace, and anything that reads files or the network. It asks
// the engine's own parser, so that no spelling gets past it.
func guard(s *session, sql string, bound *params) error {
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
	return s.query("EXPLAIN AST "+sql, "TSVRaw", bound, func(tree []byte) error { return guardTree(string(tree)) })
}

// syntaxError says what is wrong with a text that the parser refused. The text
// is only parsed again, as a string, since a prefix of it might run.
func syntaxError(s *session, sql string) error {
	bound := &params{names: []string{"sql"}, values: []string{escapeField(sql)}}
	err := s.query("SELECT formatQuery({sql:String})", "TabSeparated", bound, func([]byte) error { return nil })
	if err != nil {
		return err
	}
	return newException(codeSyntax, "a reader cannot run this kind of statement. (SYNTAX_ERROR)")
}

// guardTree checks a statement's syntax tree, one node a line.
func guardTree(tree string) error {
	describe := false
	for line := range strings.Lines(tree) {
		node, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(rest, " ")
		switch {
		case node == "DescribeQuery":
			describe = true
		case node == "Function" && describe:
			return newException(codeReadonly, "a reader cannot describe table function %s. (READONLY)", name)
		// A name can stand for a function without being called: arrayMap(file, …).
		case (node == "Function" || node == "Identifier") && deniedFunctions[strings.ToLower(name)]:
			return newException(codeReadonly, "a reader cannot use function %s. (READONLY)", name)
		// The tree does not show which function APPLY names.
		case node == "ColumnsApplyTransformer":
			return newException(codeReadonly, "a reader cannot use APPLY. (READONLY)")
		}
	}
	return nil
}

// Classes of statements, as the engine numbers them.
const (
	classReadOnly = 0
	classUnknown  = 4
)

// classify asks the engine's parser what sql would do, and of how many
// statements it consists.
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
