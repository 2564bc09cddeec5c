package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// outputCommand prints text in one of two formats, or fails half-way.
func outputCommand(out *output, failure error) *cobra.Command {
	cmd := &cobra.Command{Use: "print", SilenceErrors: true, SilenceUsage: true}
	out.add(cmd, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return out.write(cmd, func(w io.Writer) error {
			fmt.Fprintln(w, "printed as", out.format)
			return failure
		})
	}
	return cmd
}

// TestOutput: a result goes to standard output or to a file, which is replaced when the new one
// is complete.
func TestOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "result"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("earlier\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("result", link); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		args    []string
		failure error
		stdout  string
		file    string
	}{
		{nil, nil, "printed as table\n", "earlier\n"},
		{[]string{"-o", "json", "--out", "-"}, nil, "printed as json\n", "earlier\n"},
		{[]string{"--out", file}, broken, "", "earlier\n"},
		{[]string{"--out", link, "-o", "json"}, nil, "", "printed as json\n"},
		{[]string{"--out", file}, nil, "", "printed as table\n"},
		{[]string{"--out", os.DevNull}, nil, "", "printed as table\n"},
	} {
		var stdout bytes.Buffer
		cmd := outputCommand(new(output), tt.failure)
		cmd.SetArgs(append([]string{}, tt.args...))
		cmd.SetOut(&stdout)
		if err := cmd.Execute(); !errors.Is(err, tt.failure) {
			t.Errorf("%v: %v, want %v", tt.args, err, tt.failure)
		}
		text, err := os.ReadFile(file)
		if err != nil || stdout.String() != tt.stdout || string(text) != tt.file {
			t.Errorf("%v: printed %q, want %q; the file has %q, want %q, %v", tt.args, stdout.String(), tt.stdout, text, tt.file, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode changed: %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link was replaced: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestOutputRefused: an unwritable output is refused before the work.
func TestOutputRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "capture.pcap")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`--output "csv": expected table or json`:    {"-o", "csv"},
		"no such file or directory":                 {"--out", filepath.Join(dir, "missing", "result")},
		"is no folder":                              {"--out", filepath.Join(file, "result")},
		"is a folder":                               {"--out", dir},
		`x": file name too long`:                    {"--out", filepath.Join(dir, strings.Repeat("x", 255))}, // with the name of the part written
		"is one of the captures to read":            {file, "--out", filepath.Join(dir, ".", "capture.pcap")},
		"one of the captures to read: name another": {"before", "leaf3:up1=" + file, "--out", file},
	} {
		cmd := outputCommand(new(output), errors.New("the work began"))
		cmd.SetArgs(args)
		err := cmd.Execute()
		if _, usage := errors.AsType[usageError](err); !usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// TestOneSpelling: every command with a format has it as -o, and its file as --out.
func TestOneSpelling(t *testing.T) {
	t.Parallel()
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		format := cmd.Flags().Lookup("output")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Shorthand == "o" && f != format || f.Name == "format" || f.Name == "file" || f.Name == "steps" {
				t.Errorf("%s: --%s", cmd.CommandPath(), f.Name)
			}
		})
		endless := cmd.Name() == "watch" || cmd.Name() == "changes"
		if format != nil && (cmd.Flags().Lookup("out") == nil) != endless {
			t.Errorf("%s: has --output, and --out: %t", cmd.CommandPath(), endless)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}
