package conform

import (
	"encoding/xml"
	"fmt"
	"io"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Failure *junitResult `xml:"failure,omitempty"`
	Skipped *junitResult `xml:"skipped,omitempty"`
}

type junitResult struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as a JUnit file with one test case for each rule, for laboratories
// that test switches. It skips the rules that are not judged (see Unjudged).
func (r *Report) WriteJUnit(w io.Writer, device string) error {
	found := make(map[string]*Finding, len(r.Findings))
	for i := range r.Findings {
		found[r.Findings[i].Rule] = &r.Findings[i]
	}
	suite := junitSuite{Name: device, Tests: NumRules}
	for rule := range Rule(NumRules) {
		about := rule.Info()
		c := junitCase{Class: "csig." + device, Name: about.Name + ": " + about.Demand}
		if f := found[about.Name]; f != nil && f.Severity != Note {
			c.Failure = &junitResult{Message: fmt.Sprintf("%d packets (%s)", f.Count, about.Source), Text: examplesText(f) + "other cause: " + about.Otherwise}
			suite.Failures++
		} else if why := r.notJudged(rule); why != "" {
			c.Skipped = &junitResult{Message: why}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(junitSuites{Suite: suite}); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return fmt.Errorf("write junit: %w", err)
	}
	return nil
}

func examplesText(f *Finding) (text string) {
	for i := range f.Examples {
		text += f.Examples[i].String() + "\n"
	}
	return text
}

// String returns the example in one line: the packets' numbers, with their files if they have names,
// and the change.
func (e *Example) String() string {
	in := func(file string) string {
		if file == "" {
			return ""
		}
		return " in " + file
	}
	s := fmt.Sprintf("packet %d before%s", e.Before, in(e.BeforeFile))
	if e.WasTag != nil {
		s += " (" + e.WasTag.String() + ")"
	}
	if e.After == 0 {
		return s
	}
	s += fmt.Sprintf(", %d after%s", e.After, in(e.AfterFile))
	if e.IsTag != nil {
		s += " (" + e.IsTag.String() + ")"
	}
	if e.Port != "" {
		s += " by " + e.Port
	}
	return s
}

// String returns the tag's fields in one line.
func (t *Seen) String() string {
	s := fmt.Sprintf("%s T %d S %d LM %d", t.Layout, t.Type, t.S, t.LM)
	if t.Trimmed {
		s += " D"
	}
	if t.Reserved != 0 {
		s += fmt.Sprintf(" R %d", t.Reserved)
	}
	return s
}
