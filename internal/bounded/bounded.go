// Package bounded keeps the beginning of what programs write.
package bounded

import "bytes"

// Buffer keeps the first bytes that are written to it. It does not embed a bytes.Buffer,
// by whose ReadFrom io.Copy would pass the bound.
type Buffer struct {
	most int
	kept bytes.Buffer
	cut  bool
}

// NewBuffer returns a Buffer that keeps so many bytes.
func NewBuffer(most int) *Buffer { return &Buffer{most: most} }

// Write implements io.Writer. It never fails.
func (b *Buffer) Write(data []byte) (int, error) {
	room := min(len(data), b.most-b.kept.Len())
	b.cut = b.cut || room < len(data)
	b.kept.Write(data[:room])
	return len(data), nil
}

// IsCut reports whether there were more bytes.
func (b *Buffer) IsCut() bool { return b.cut }

// Bytes returns what is kept, until the next Write.
func (b *Buffer) Bytes() []byte { return b.kept.Bytes() }

// String returns what is kept.
func (b *Buffer) String() string { return b.kept.String() }
