// Package resourcetest replays requests to which upstream's answers are known
// against resource definitions: decode, default, prepare, validate. What needs
// a server (allocation, admission) is left to a hook.
//
//	testdata/answers/create.jsonl.gz  POSTs
//	testdata/answers/update.jsonl.gz  PUTs, after a POST (case "base") for each object
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

// Answer is one request (all with dryRun=All and fieldValidation=Strict, as
// cluster admin) and what upstream answered to it.
type Answer struct {
	ID      string // file and line, "create:17"
	Kind    string // "apps/v1 Deployment"
	Case    string // what was changed in a valid object
	Method  string
	Request json.RawMessage // the body

	Code    int
	Reason  metav1.StatusReason
	Message string
	Causes  []metav1.StatusCause
	// Object is what would have been stored. Fields that differ from server to
	// server are "*" or left out.
	Object map[string]any
}

// Answers reads the answers to "create" or "update" requests, in order.
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
