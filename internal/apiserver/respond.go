package apiserver

import (
	"bufio"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/httpserver"
)

// response is the answer to a request so far.
type response struct {
	w     http.ResponseWriter
	wire  http.ResponseWriter // the connection's own writer, below w
	asked *http.Request       // as it was received
	held  *holdings

	warnings warnings
	code     int  // 0 until the answer begins
	size     int  // of the body
	dropped  bool // the server refused the request to protect itself
	// truncated reports that a panic interrupted the answer.
	truncated bool
}

// closeAfter closes an HTTP/1.1 connection after the request, because the rest of
// the body is unread. HTTP/2 ends only the stream.
func (a *response) closeAfter() {
	if a.asked.ProtoMajor == 1 {
		a.w.Header().Set("Connection", "close")
	}
}

// closeUnauthenticated closes an HTTP/2 connection after this request, so that
// unauthenticated clients keep none open (CVE-2023-44487).
func (a *response) closeUnauthenticated() {
	if a.asked.ProtoMajor == 2 {
		a.w.Header().Set("Connection", "close")
	}
}

// writeAnswer calls write, which sends the answer. It releases the request's
// seat if the client is slow to read, and the reserved memory as it is sent.
func (a *response) writeAnswer(size int, write func(io.Writer)) {
	a.held.slot.Release()
	a.held.working.Shrink(int64(size))
	if size <= promptAnswer {
		write(a.w)
		return
	}
	if a.held.seat.held.Load() {
		defer time.AfterFunc(slowAnswer, a.held.seat.leave).Stop()
	}
	write(&sending{a.w, &a.held.working, size})
}

// send answers with a complete body.
func (a *response) send(code int, media codec.Media, body []byte) {
	header := a.w.Header()
	header["Content-Type"] = []string{media.String()}
	a.warnings.write(header)
	a.code, a.size = code, len(body)
	if a.compresses(len(body)) {
		a.sendCompressed(code, len(body), func(w *gzip.Writer) error { _, err := w.Write(body); return err })
		return
	}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	a.w.WriteHeader(code)
	if a.asked.Method != http.MethodHead {
		a.writeAnswer(len(body), func(w io.Writer) { _, _ = w.Write(body) })
	}
}

// sendList answers with a list, which it streams in few writes.
func (a *response) sendList(l *codec.List, media codec.Media) {
	header := a.w.Header()
	header["Content-Type"] = []string{media.String()}
	a.warnings.write(header)
	a.code, a.size = http.StatusOK, l.Size()
	if a.compresses(l.Size()) {
		a.sendCompressed(http.StatusOK, l.Size(), func(w *gzip.Writer) error { _, err := l.WriteTo(w); return err })
		return
	}
	header["Content-Length"] = []string{strconv.Itoa(l.Size())}
	a.w.WriteHeader(http.StatusOK)
	if a.asked.Method != http.MethodHead {
		a.writeAnswer(l.Size(), func(w io.Writer) { _, _ = l.WriteTo(w) })
	}
}

// compressionThreshold is the size in bytes from which compression pays off.
const compressionThreshold = 128 << 10

// compresses reports whether a body of this size is compressed.
func (a *response) compresses(size int) bool {
	return size >= compressionThreshold && a.held.server.registry.Features.Enabled(feature.APIResponseCompression) && a.takesGzip()
}

// takesGzip reports whether the client takes compressed answers. Clients on the
// same machine get none.
func (a *response) takesGzip() bool {
	if strings.HasPrefix(a.asked.RemoteAddr, "127.") || strings.HasPrefix(a.asked.RemoteAddr, "[::1]") || a.asked.RemoteAddr == "" {
		return false
	}
	for _, encoding := range strings.Split(a.asked.Header.Get("Accept-Encoding"), ",") {
		if encoding, _, _ = strings.Cut(encoding, ";"); strings.TrimSpace(encoding) == "gzip" {
			return true
		}
	}
	return false
}

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

func (a *response) sendCompressed(code, size int, write func(*gzip.Writer) error) {
	header := a.w.Header()
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	a.w.WriteHeader(code)
	if a.asked.Method == http.MethodHead {
		return
	}
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	a.writeAnswer(size, func(to io.Writer) {
		w.Reset(to)
		if write(w) == nil {
			_ = w.Close()
		}
	})
}

// unreadPatience is how long the client of a stream may read nothing. It equals
// the kubelet's idle timeout of streams.
const unreadPatience = 4 * time.Hour

// serveWith lets h answer the request. The context has the user and the
// RequestInfo.
func (q *request) serveWith(h http.Handler) {
	recorder := &recordingWriter{ResponseWriter: q.response.w, response: &q.response}
	if isLongRunning(&q.call.Info) {
		recorder.ResponseWriter = httpserver.LimitUnread(q.response.w, unreadPatience)
	}
	r := q.http.WithContext(q.call.AdmissionContext())
	r.Body = q.body.unread(q.http.Body)
	h.ServeHTTP(recorder, r)
	if q.response.code == 0 {
		q.response.code = http.StatusOK
	}
}

// recordingWriter records the status code and size of an answer.
type recordingWriter struct {
	http.ResponseWriter
	response *response
}

func (w *recordingWriter) WriteHeader(code int) {
	if w.response.code == 0 && code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.response.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recordingWriter) Write(data []byte) (n int, err error) {
	if w.response.code == 0 {
		w.response.code = http.StatusOK
	}
	w.response.size += len(data)
	w.response.writeAnswer(w.response.size, func(io.Writer) { n, err = w.ResponseWriter.Write(data) })
	return n, err
}

// Flush implements http.Flusher for handlers that ask for it.
func (w *recordingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker for handlers that upgrade the connection,
// which is then limited like a stream.
func (w *recordingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.response.code = http.StatusSwitchingProtocols
	return http.NewResponseController(httpserver.LimitUnread(w.response.w, unreadPatience)).Hijack()
}
