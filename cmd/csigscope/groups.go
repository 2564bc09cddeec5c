package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// addGroup adds commands under a title of their own in the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// refuseUnknown makes a command that is there for its subcommands alone, and those below
// it, refuse what is none of them, where cobra would print the help and be content: a script
// that asks for `schema migrat` has to fail.
func refuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		see := cmd.CommandPath() + " --help"
		cmd.SuggestionsMinimumDistance = 2 // as cobra has it where it suggests by itself
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			return usageError{fmt.Errorf("unknown command %q of %s: did you mean %s? (see %s)", args[0], cmd.CommandPath(), strings.Join(like, " or "), see)}
		}
		return usageError{fmt.Errorf("unknown command %q of %s (see %s)", args[0], cmd.CommandPath(), see)}
	}
	// They can be run, but nobody has to know.
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
}
