// Command mkimage creates a container image from files on this machine, as an
// OCI image layout in a tar file. It needs no registry, daemon or base image.
//
//	mkimage -o pause.tar -name coracle.internal/pause:1.0 -entrypoint /pause /pause=bin/pause
//
// Each argument is TARGET=SOURCE for a file (mode 0755) or TARGET->DEST for a
// symbolic link. The same files produce the same bytes, and so the same digest:
// all times are zero and all owners are root. index.json, which has the image's
// name and digest, is the first file of the archive, so that a reader finds the
// digest without reading the layers. Layers are not compressed, because
// unpacking costs more than reading from the local disk.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	var spec imageSpec
	output := flag.String("o", "", "archive to write")
	flag.StringVar(&spec.Name, "name", "", "full name and tag of the image")
	flag.StringVar(&spec.Arch, "arch", "amd64", "architecture of the programs in it")
	entrypoint := flag.String("entrypoint", "", "program that the image runs")
	flag.StringVar(&spec.User, "user", "", "UID:GID that the image runs as; empty is root")
	ports := flag.String("ports", "", "exposed ports, such as 8080/tcp, separated by commas")
	flag.Parse()
	spec.Entrypoint = strings.Fields(*entrypoint)
	if *ports != "" {
		spec.Ports = strings.Split(*ports, ",")
	}
	if err := run(*output, spec, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(output string, spec imageSpec, args []string) error {
	if output == "" || spec.Name == "" || len(spec.Entrypoint) == 0 || len(args) == 0 {
		return errors.New("-o, -name, -entrypoint and at least one TARGET=SOURCE are required")
	}
	for _, arg := range args {
		entry, err := parseEntry(arg)
		if err != nil {
			return err
		}
		spec.Entries = append(spec.Entries, entry)
	}
	image, err := build(spec)
	if err != nil {
		return err
	}
	return writeArchive(output, spec.Name, image)
}
