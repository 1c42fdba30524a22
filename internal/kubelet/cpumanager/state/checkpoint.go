// Package state is the content of the file cpu_manager_state, in upstream's
// format.
package state

import (
	"encoding/json"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
)

// CPUManagerCheckpoint has the CPUs of the containers by pod and name. The name
// of the type is part of its checksum.
type CPUManagerCheckpoint struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
	Checksum      checksum.Checksum            `json:"checksum"`
}

// Marshal returns the content of the file, in the form that all of upstream's
// kubelets read.
func (c *CPUManagerCheckpoint) Marshal() ([]byte, error) {
	c.Checksum = 0
	c.Checksum = checksum.New(c)
	return json.Marshal(c)
}

// Unmarshal reads the content of the file. The error matches checksum.ErrCorrupt
// for a file that has changed.
func Unmarshal(raw []byte) (*CPUManagerCheckpoint, error) {
	c := &CPUManagerCheckpoint{Entries: map[string]map[string]string{}}
	if err := checksum.Read(raw, c, &c.Checksum); err != nil {
		return nil, err
	}
	return c, nil
}
