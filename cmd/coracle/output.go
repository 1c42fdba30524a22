package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/printable"
)

// addOutputFlag adds the flag --output, whose value checkOutput checks.
func addOutputFlag(fs *pflag.FlagSet, output *string) {
	fs.StringVarP(output, "output", "o", "", "output format: json or yaml, or text if it is empty")
}

// checkOutput returns an error for an unknown value of --output.
func checkOutput(output string) error {
	if output != "" && output != "json" && output != "yaml" {
		return fmt.Errorf("--output=%s: want json or yaml, or nothing for text", output)
	}
	return nil
}

// write writes a report in the form of --output.
func write(out io.Writer, output string, report interface{ WriteText(io.Writer) }) error {
	if output == "" {
		report.WriteText(out)
		return nil
	}
	encoded, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if output == "json" {
		_, err = out.Write(append(printable.JSON(encoded), '\n'))
		return err
	}
	if encoded, err = yaml.JSONToYAML(encoded); err != nil {
		return err
	}
	_, err = printable.Writer{Writer: out}.Write(encoded)
	return err
}
