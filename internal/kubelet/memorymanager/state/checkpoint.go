// Package state is the content of the file memory_manager_state, in upstream's
// format.
package state

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/kubelet/checksum"
)

// MemoryTable has the bytes of one kind of memory of a NUMA node.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// NUMANodeState is the memory of a NUMA node. Cells are the IDs of the NUMA nodes
// in its group, which serves containers whose memory spans several nodes.
type NUMANodeState struct {
	NumberOfAssignments int                              `json:"numberOfAssignments"`
	MemoryMap           map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                            `json:"cells"`
}

// NUMANodeMap is the memory of a machine, by NUMA node.
type NUMANodeMap map[int]*NUMANodeState

// Block is memory that a container has on some NUMA nodes.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// ContainerMemoryAssignments are the blocks of the containers by pod and name.
type ContainerMemoryAssignments map[string]map[string][]Block

// MemoryManagerCheckpoint is the content of the file. The names of the types are
// part of its checksum.
type MemoryManagerCheckpoint struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum     checksum.Checksum          `json:"checksum"`
}

// Marshal returns the content of the file.
func (c *MemoryManagerCheckpoint) Marshal() ([]byte, error) {
	c.Checksum = 0
	c.Checksum = checksum.New(c)
	return json.Marshal(c)
}

// Unmarshal reads the content of the file. The error matches checksum.ErrCorrupt
// for a file that has changed.
func Unmarshal(raw []byte) (*MemoryManagerCheckpoint, error) {
	c := &MemoryManagerCheckpoint{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{}}
	if err := checksum.Read(raw, c, &c.Checksum); err != nil {
		return nil, err
	}
	return c, nil
}
