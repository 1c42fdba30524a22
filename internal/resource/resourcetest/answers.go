// Package resourcetest replays recorded requests, for which upstream's answers
// are known, against resource definitions: decode, default, prepare, validate.
// A hook takes the place of what needs a server (allocation, admission).
//
//	testdata/answers/create.jsonl.gz  POSTs
//	testdata/answers/update.jsonl.gz  PUTs, after a POST (case "base") for each object
//
// The files were recorded from upstream 1.36, so no test can rewrite them. A
// test excuses known differences to later releases in a file of its own.
package resourcetest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed testdata/answers/*.jsonl.gz
var answers embed.FS

// Answer is one request and upstream's answer to it. All requests had
// dryRun=All and fieldValidation=Strict, and came from a cluster admin.
type Answer struct {
	ID      string // file and line, "create:17"
	Kind    string // "apps/v1 Deployment"
	Case    string // the change to a valid object
	Method  string
	Request json.RawMessage // the body

	Code    int
	Reason  metav1.StatusReason
	Message string
	Causes  []metav1.StatusCause
	// Object is the object that upstream would have stored. Fields that differ
	// from server to server are "*" or missing.
	Object map[string]any
}

// Answers returns the answers to "create" or "update" requests, in order.
func Answers(file string) ([]Answer, error) {
	packed, err := answers.ReadFile("testdata/answers/" + file + ".jsonl.gz")
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var all []Answer
	lines := bufio.NewReader(unpacked)
	for decoder, n := json.NewDecoder(lines), 1; decoder.More(); n++ {
		var a Answer
		if err := decoder.Decode(&a); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, n, err)
		}
		a.ID = fmt.Sprintf("%s:%d", file, n)
		all = append(all, a)
	}
	return all, nil
}
