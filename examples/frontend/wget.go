package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
)

// wget is the part of wget(1) that examples need: wget [-q] [-O FILE] [-T
// SECONDS] URL. In an image without the C library, a static BusyBox cannot
// resolve names, and this program can.
func wget(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("wget", flag.ContinueOnError)
	quiet := fs.Bool("q", false, "say nothing about progress")
	output := fs.String("O", "", "file to write, - for standard output")
	timeout := fs.Int("T", 30, "seconds to wait")
	if err := fs.Parse(separate(args)); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return errors.New("usage: wget [-q] [-O FILE] [-T SECONDS] URL")
	}
	url := fs.Arg(0)
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	client := http.Client{Timeout: time.Duration(*timeout) * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("server returned error: %s", response.Status)
	}
	if *output == "-" {
		_, err = io.Copy(out, response.Body)
		return err
	}
	name := *output
	if name == "" {
		if name = path.Base(response.Request.URL.Path); name == "/" || name == "." {
			name = "index.html"
		}
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, response.Body); err != nil {
		return errors.Join(err, f.Close())
	}
	if !*quiet {
		_, _ = fmt.Fprintf(out, "'%s' saved\n", name)
	}
	return f.Close()
}

// separate splits joined short options, so that -qO- becomes -q -O -.
func separate(args []string) []string {
	var out []string
	for _, a := range args {
		rest, joined := strings.CutPrefix(a, "-q")
		switch {
		case joined && rest != "" && a != "-q":
			out = append(out, "-q")
			out = append(out, separate([]string{"-" + rest})...)
		case strings.HasPrefix(a, "-O") && len(a) > 2, strings.HasPrefix(a, "-T") && len(a) > 2:
			out = append(out, a[:2], a[2:])
		default:
			out = append(out, a)
		}
	}
	return out
}
