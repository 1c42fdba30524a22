package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error of an earlier start is not the reason of this one.
func TestLastErrorIsOfThisStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "coracle.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("coracle: the port was taken\n")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write("I0101 something else\n")
	if got := lastError(path, before); strings.Contains(got, "port") {
		t.Errorf("got %q", got)
	}
	write("coracle: the disk is full\n" + strings.Repeat("I0101 noise\n", 1000))
	if got := lastError(path, before); got != "the disk is full" {
		t.Errorf("got %q", got)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("coracle: new\n")
	if got := lastError(path, before); got != "new" {
		t.Errorf("got %q", got)
	}
}
