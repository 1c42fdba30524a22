package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
)

// document is one compressed document.
type document struct {
	gzipped []byte
	hash    func() string // computed at the first use

	asProto atomic.Pointer[document] // a version 3 document as protobuf, after the first request for it
}

func newDocument(gzipped []byte) *document {
	return &document{gzipped: gzipped, hash: sync.OnceValue(func() string {
		return fmt.Sprintf("%X", sha512.Sum512(gzipped))
	})}
}

// write sends a document: compressed if the client accepts gzip, else
// decompressed at the speed of the client, so that slow clients take no
// memory. It does not serve ranges, because each would need another
// decompression.
func write(w http.ResponseWriter, r *http.Request, d *document, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Etag", fmt.Sprintf("%q", d.hash()))
	w.Header().Set("Vary", "Accept, Accept-Encoding")
	r.Header.Del("Range")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.gzipped))
		return
	}
	http.ServeContent(w, r, "", time.Time{}, &unpacked{gzipped: d.gzipped})
}

// unpacked decompresses a document while it is read. It can be read from the
// beginning only; seeking the end returns the length.
type unpacked struct {
	gzipped []byte
	reader  *gzip.Reader // nil before the first Read
}

// Seek implements io.Seeker.
func (u *unpacked) Seek(offset int64, whence int) (int64, error) {
	switch {
	case whence == io.SeekStart && offset == 0:
		u.reader = nil
		return 0, nil
	case whence == io.SeekEnd && offset == 0:
		return int64(binary.LittleEndian.Uint32(u.gzipped[len(u.gzipped)-4:])), nil // RFC 1952, ISIZE
	}
	return 0, fmt.Errorf("a document is read from its beginning, not from %d", offset)
}

// Read implements io.Reader.
func (u *unpacked) Read(p []byte) (n int, err error) {
	if u.reader == nil {
		if u.reader, err = gzip.NewReader(bytes.NewReader(u.gzipped)); err != nil {
			return 0, err
		}
	}
	return u.reader.Read(p)
}

// v3Protobuf returns a version 3 document as protobuf. Parsing takes a
// hundred times the document's memory, so it is done once, and for one
// document at a time.
func (h *Handler) v3Protobuf(d *document) (*document, error) {
	if made := d.asProto.Load(); made != nil {
		return made, nil
	}
	h.parsing.Lock()
	defer h.parsing.Unlock()
	if made := d.asProto.Load(); made != nil {
		return made, nil
	}
	raw, err := decompress(d.gzipped)
	if err != nil {
		return nil, err
	}
	parsed, err := openapi_v3.ParseDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v3 as protobuf: %w", err)
	}
	pb, err := proto.Marshal(parsed)
	if err != nil {
		return nil, err
	}
	gzipped, err := compress(pb)
	if err != nil {
		return nil, err
	}
	made := newDocument(gzipped)
	d.asProto.Store(made)
	return made, nil
}

func compress(raw []byte) ([]byte, error) { return compressAt(raw, gzip.DefaultCompression) }

func compressAt(raw []byte, level int) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(raw); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func decompress(gzipped []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(gzipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
