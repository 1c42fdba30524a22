// Package filestest has file systems for tests.
package filestest

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// ErrKilled is the error of all operations after the kubelet was killed.
var ErrKilled = errors.New("killed")

// FailAfter is the file system of a kubelet that is killed after a number of steps:
// changes of the file system, and what else calls Step.
type FailAfter struct {
	files.FS
	mu   sync.Mutex // guards left
	left int
}

// NewFailAfter returns a file system that passes on a number of changes.
func NewFailAfter(of files.FS, steps int) *FailAfter { return &FailAfter{FS: of, left: steps} }

// Step takes a step. It returns ErrKilled if none is left.
func (m *FailAfter) Step() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return ErrKilled
	}
	m.left--
	return nil
}

// MkdirAll implements files.FS.
func (m *FailAfter) MkdirAll(path string, mode fs.FileMode) error {
	if err := m.Step(); err != nil {
		return err
	}
	return m.FS.MkdirAll(path, mode)
}

// Replace implements files.FS.
func (m *FailAfter) Replace(path string, data []byte, mode fs.FileMode) error {
	if err := m.Step(); err != nil {
		return err
	}
	return m.FS.Replace(path, data, mode)
}

// ReplaceUnsynced implements files.FS.
func (m *FailAfter) ReplaceUnsynced(path string, data []byte, mode fs.FileMode) error {
	if err := m.Step(); err != nil {
		return err
	}
	return m.FS.ReplaceUnsynced(path, data, mode)
}

// Remove implements files.FS.
func (m *FailAfter) Remove(path string) error {
	if err := m.Step(); err != nil {
		return err
	}
	return m.FS.Remove(path)
}
