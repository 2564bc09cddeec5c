package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker to the tag or commit that was built.
var version = "unknown"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and how it was built",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "csigscope %s\n", version)
			fmt.Fprintf(out, "built with %s for %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, d := range info.Deps {
					switch d.Path {
					case "github.com/google/gopacket", "github.com/ClickHouse/clickhouse-go/v2":
						fmt.Fprintf(out, "%s %s\n", d.Path, d.Version)
					}
				}
			}
			return nil
		},
	}
}
