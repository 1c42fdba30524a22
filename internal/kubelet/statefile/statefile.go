// Package statefile keeps what a manager of the node's resources has given to
// containers in a file, for the next kubelet.
package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// File is the state file of a manager. T is its content.
type File[T any] struct {
	Manager   string // for messages, such as "CPU manager"
	Path      string
	MaxSize   int64
	Files     files.FS
	Unmarshal func([]byte) (*T, error)
	// Dispensable makes a file that Unmarshal refuses count as none.
	Dispensable bool
}

// Restore calls restore with the content of the file, nil if there is none. An
// empty file, which a loss of power can leave, counts as none.
//
// The error says what the user has to do: running containers may have resources
// that nobody knows of.
func (f *File[T]) Restore(restore func(*T) error) error {
	content, err := f.read()
	if err == nil {
		err = restore(content)
	}
	if err != nil {
		return fmt.Errorf("start %s error: could not restore state from checkpoint: %w, please drain this node and delete the %s checkpoint file %q before restarting Kubelet", strings.ToLower(f.Manager), err, f.Manager, f.Path)
	}
	return nil
}

func (f *File[T]) read() (*T, error) {
	raw, err := f.Files.ReadFile(f.Path, f.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		klog.Background().Info("The state of the "+f.Manager+" is empty, starting without it", "file", f.Path)
		return nil, nil
	}
	content, err := f.Unmarshal(raw)
	if err != nil && f.Dispensable {
		klog.Background().Error(err, "The state of the "+f.Manager+" cannot be read, starting without it", "file", f.Path)
		return nil, nil
	}
	return content, err
}

// Save replaces the file.
func (f *File[T]) Save(content interface{ Marshal() ([]byte, error) }) error {
	raw, err := content.Marshal()
	if err == nil {
		err = f.Files.Replace(f.Path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("failed to save the %s's state to %s: %w", f.Manager, f.Path, err)
	}
	return nil
}
