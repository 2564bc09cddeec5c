package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/query/client"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/ingest/edge"
)

// environmentPrefix is the prefix of all environment variables of the program.
const environmentPrefix = "CSIGSCOPE_"

// variable returns the environment variable of a flag: CSIGSCOPE_QUERY_SERVE_LISTEN for
// --listen of query serve, so that none applies to two commands. Only --config and --verbose,
// which mean the same everywhere, have one for all commands. It returns "" for --help,
// --version, and all flags of hidden commands, which csigscope itself starts.
func variable(cmd *cobra.Command, f *pflag.Flag) string {
	path := cmd.CommandPath()
	switch {
	case cmd.Hidden || f.Name == "help" || f.Name == "version":
		return ""
	case f.Name == "config" || f.Name == "verbose":
		path = cmd.Root().Name()
	}
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(path + " " + f.Name))
}

// exclusiveNote is the annotation of a flag that lists the flags that cannot be used with it, by name, or by
// NAME=VALUE if only that value cannot.
const exclusiveNote = "csigscope_exclusive"

// exclusive notes flags that cannot be used together, so that one on the command line takes
// precedence over another one in the environment. If both are on the command line, or both in the environment, the
// command itself refuses them.
func exclusive(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		others := slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })
		_ = flags.SetAnnotation(name, exclusiveNote, append(f.Annotations[exclusiveNote], others...)) // the flag exists
	}
}

// needless notes that a value of a flag, "table=flows", cannot be used with other flags.
func needless(flags *pflag.FlagSet, with string, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, exclusiveNote, append(flags.Lookup(name).Annotations[exclusiveNote], with)) // the flag exists
	}
}

// flagsFromEnvironment sets each flag that is not on the command line from its variable, if
// there is one, unless the command line has a flag that excludes it, and warns of unknown variables.
func flagsFromEnvironment(cmd *cobra.Command) error {
	if cmd.Hidden {
		return nil
	}
	var failed error
	flags := cmd.Flags()
	given, notes := make(map[string]bool), make(map[string]bool) // on the command line, and the notes there
	flags.Visit(func(f *pflag.Flag) {
		given[f.Name], given[f.Name+"="+f.Value.String()] = true, true
		for _, other := range f.Annotations[exclusiveNote] {
			notes[other] = true
		}
	})
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(cmd, f)
		value, ok := os.LookupEnv(name)
		excluded := slices.ContainsFunc(f.Annotations[exclusiveNote], func(other string) bool { return given[other] })
		if !ok || given[f.Name] || excluded || notes[f.Name+"="+value] || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = usageError{fmt.Errorf("environment variable %s: %w", name, plainFlagError(err))}
		}
	})
	known := variables(cmd.Root())
	for _, assignment := range os.Environ() {
		name, _, _ := strings.Cut(assignment, "=")
		if strings.HasPrefix(name, environmentPrefix) && !strings.HasPrefix(name, testPrefix) && known[name] == "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: no flag has the environment variable %s: did you mean %s?\n", name, likeVariable(cmd, name, known))
		}
	}
	return failed
}

// testPrefix is the prefix of the variables of this project's tests.
const testPrefix = environmentPrefix + "TEST_"

// variables returns all environment variables of the program, each with its name without the
// command.
func variables(cmd *cobra.Command) map[string]string {
	list := map[string]string{store.PasswordVariable: store.PasswordVariable, chdb.LibraryEnv: chdb.LibraryEnv}
	addVariables(list, cmd)
	return list
}

func addVariables(list map[string]string, cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if name := variable(cmd, f); name != "" {
			list[name] = variable(cmd.Root(), f)
		}
	})
	for _, sub := range cmd.Commands() {
		addVariables(list, sub)
	}
}

// likeVariable returns the known variable that is closest to an unknown one by edit distance,
// with or without its command, preferring variables of this command.
func likeVariable(cmd *cobra.Command, name string, known map[string]string) (like string) {
	least := math.MaxInt
	try := func(k string) {
		if n := min(editDistance(name, k), editDistance(name, known[k])); n < least {
			like, least = k, n
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if own := variable(cmd, f); own != "" {
			try(own)
		}
	})
	for _, k := range slices.Sorted(maps.Keys(known)) {
		try(k)
	}
	return like
}

// editDistance returns the number of bytes to add, remove or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// flagTypes describes the values of a flag by pflag's type.
var flagTypes = map[string]string{
	"bool":     "true or false",
	"duration": "a time with a unit, such as 500ms, 10s or 1h30m",
	"float64":  "a number",
	"int":      "a whole number",
	"uint64":   "a whole number of at least 0",
}

// plainFlagError describes the expected value of a flag instead of the parser's error.
func plainFlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name, value, cause := wrong.GetFlag().Name, wrong.GetValue(), wrong.Unwrap()
	if strings.HasPrefix(cause.Error(), "expected ") { // from the types of package config
		return fmt.Errorf("--%s %q: %w", name, value, cause)
	}
	if expected, ok := flagTypes[wrong.GetFlag().Value.Type()]; ok {
		return fmt.Errorf("--%s %q: expected %s", name, value, expected)
	}
	return fmt.Errorf("--%s: %w", name, cause)
}

// addByteFlag adds a flag for a size in bytes with a default.
func addByteFlag(flags *pflag.FlagSet, n *int64, name string, value int64, usage string) {
	*n = value
	flags.Var((*config.Bytes)(n), name, usage)
}

// noArgs rejects arguments. Most are files whose flag was forgotten.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var hint string
	if cmd.Flags().Lookup("config") != nil {
		hint = ": a configuration file goes behind --config"
	}
	if cmd.Flags().Lookup("fabric") != nil {
		hint += ", a fabric file behind --fabric"
	}
	return usageError{fmt.Errorf("%s: unexpected argument %q%s (see %s --help)", cmd.Name(), args[0], hint, cmd.CommandPath())}
}

// oneArg requires one argument, such as a FOLDER.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError{fmt.Errorf("%s: expected one %s, got %d (see %s --help)", cmd.Name(), what, len(args), cmd.CommandPath())}
		}
		return nil
	}
}

// filesArgs requires at least one file, and standard input at most once: two readers would each get
// a part of it.
func filesArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: no capture file given (see %s --help)", cmd.Name(), cmd.CommandPath())}
	}
	stdin := 0
	for _, arg := range args {
		if arg == "-" || strings.HasSuffix(arg, "=-") { // PORT=- of conform
			stdin++
		}
	}
	if stdin > 1 {
		return usageError{fmt.Errorf("%s: - is given %d times: expected standard input at most once", cmd.Name(), stdin)}
	}
	return nil
}

// newLogger logs warnings to w, and everything with --verbose.
func newLogger(cmd *cobra.Command, w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if verbose, err := cmd.Flags().GetBool("verbose"); err == nil && verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// addCredentialFlags adds the flags for commands that query a server.
func addCredentialFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.String("token-file", "", "with --server: `FILE` with the bearer token")
	flags.String("server-ca", "", "with --server: `FILE` of the certificate authorities to trust (PEM), instead of the system's")
	flags.String("client-cert", "", "with --server: `FILE` of the client certificate (PEM)")
	flags.String("client-key", "", "with --server: `FILE` of the key of the client certificate (PEM)")
}

// answerPatience is the time limit for the begin of a server's answer; api: {answer_time} is
// below it.
const answerPatience = 2 * time.Minute

// newServerClient returns a client for a server, with the credentials in the flags.
func newServerClient(cmd *cobra.Command, server string) (*client.Client, error) {
	wrong := func(err error) error { return usageError{fmt.Errorf("--server: %w", err)} }
	files := edge.TLSFiles{Cert: flagText(cmd, "client-cert"), Key: flagText(cmd, "client-key"), CA: flagText(cmd, "server-ca")}
	tokenFile := flagText(cmd, "token-file")
	u, err := url.Parse(server)
	if err == nil && (u.Scheme == "http" && files != edge.TLSFiles{} || edge.InClear(u) && tokenFile != "") {
		return nil, wrong(errors.New("expected https, since credentials would travel in the clear"))
	}
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: answerPatience, IdleConnTimeout: 90 * time.Second,
	}
	h, err := edge.NewClient(base, files, tokenFile, time.Now, newLogger(cmd, cmd.ErrOrStderr()))
	if err != nil {
		return nil, usageError{err}
	}
	c, err := client.New(server, h)
	if err != nil {
		return nil, wrong(err)
	}
	return c, nil
}
