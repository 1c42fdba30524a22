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
	"github.com/coracle-io/coracle/internal/compute"
	"github.com/coracle-io/coracle/internal/httpserver"
	"github.com/coracle-io/coracle/internal/memory"
)

var contentTypes = [...][]string{{"application/json"}, {"application/yaml"}, {"application/vnd.kubernetes.protobuf"}, {"application/cbor"}}

// response is the answer to a request, as far as it has been given.
type response struct {
	w    http.ResponseWriter
	wire http.ResponseWriter // w as the connection gave it
	http *http.Request       // that is answered
	// What is given back as the answer goes out.
	seat      seat
	computing *compute.Turn // of a large request; nil for others
	held      memory.Held   // promised for what is large
	kept      memory.Held   // counted while the client takes its time

	warnings warnings
	code     int // 0 as long as there is no answer
	size     int // of the body
	dropped  bool
}

// drop refuses the request to protect the server.
func (a *response) drop() error {
	a.dropped = true
	a.w.Header().Set("Retry-After", "1")
	return errTooManyRequests
}

// closeAfter ends the connection with the request, as the rest of the body is
// still to come. HTTP/2 ends the stream alone.
func (a *response) closeAfter() {
	if a.http.ProtoMajor == 1 {
		a.w.Header().Set("Connection", "close")
	}
}

// answering waits for an answer to be written. Should the client be slow to
// read it, others get the request's seat. What was promised for the request is
// given back as far as the answer has gone out.
func (a *response) answering(size int, write func(io.Writer)) {
	a.computing.Leave()
	a.held.Shrink(int64(size))
	if size <= promptAnswer {
		write(a.w)
		return
	}
	if a.seat.held.Load() {
		defer time.AfterFunc(slowAnswer, a.seat.leave).Stop()
	}
	write(&sending{a.w, &a.held, size})
}

// send answers with a whole body.
func (a *response) send(code int, media codec.Media, body []byte) {
	header := a.w.Header()
	header["Content-Type"] = contentTypes[media]
	a.warnings.write(header)
	a.code, a.size = code, len(body)
	if a.compresses(len(body)) {
		a.sendCompressed(code, len(body), func(w *gzip.Writer) error { _, err := w.Write(body); return err })
		return
	}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	a.w.WriteHeader(code)
	if a.http.Method != http.MethodHead {
		a.answering(len(body), func(w io.Writer) { _, _ = w.Write(body) })
	}
}

// sendList answers with a list, written in few pieces.
func (a *response) sendList(l *codec.List, media codec.Media) {
	header := a.w.Header()
	header["Content-Type"] = contentTypes[media]
	a.warnings.write(header)
	a.code, a.size = http.StatusOK, l.Size()
	if a.compresses(l.Size()) {
		a.sendCompressed(http.StatusOK, l.Size(), func(w *gzip.Writer) error { _, err := l.WriteTo(w); return err })
		return
	}
	header["Content-Length"] = []string{strconv.Itoa(l.Size())}
	a.w.WriteHeader(http.StatusOK)
	if a.http.Method != http.MethodHead {
		a.answering(l.Size(), func(w io.Writer) { _, _ = l.WriteTo(w) })
	}
}

// compressionThreshold is the size from which compression pays.
const compressionThreshold = 128 << 10

// compresses says whether a body of this size is sent compressed: never to a
// client on the same machine.
func (a *response) compresses(size int) bool {
	if size < compressionThreshold || strings.HasPrefix(a.http.RemoteAddr, "127.") || strings.HasPrefix(a.http.RemoteAddr, "[::1]") || a.http.RemoteAddr == "" {
		return false
	}
	for _, encoding := range strings.Split(a.http.Header.Get("Accept-Encoding"), ",") {
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
	if a.http.Method == http.MethodHead {
		return
	}
	w := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	a.answering(size, func(to io.Writer) {
		w.Reset(to)
		if write(w) == nil {
			_ = w.Close()
		}
	})
}

// unreadPatience is how long the client of a log or another stream may read
// nothing of it: as long as kubelets let a stream be idle.
const unreadPatience = 4 * time.Hour

// handOver lets another handler answer. The handler sees the user and what
// the request is about in its context.
func (q *request) handOver(h http.Handler) {
	recorder := &recordingWriter{ResponseWriter: q.w, response: &q.response}
	if isLongRunning(&q.Info) {
		recorder.ResponseWriter = httpserver.LimitUnread(q.w, unreadPatience)
	}
	r := q.http.WithContext(q.AdmissionContext())
	r.Body = q.body.unread(q.http.Body)
	h.ServeHTTP(recorder, r)
	if q.code == 0 {
		q.code = http.StatusOK
	}
}

// recordingWriter notes the code and size of an answer.
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
	w.response.answering(w.response.size, func(io.Writer) { n, err = w.ResponseWriter.Write(data) })
	return n, err
}

// Flush implements http.Flusher for handlers that ask for it.
func (w *recordingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack lets handlers that upgrade the connection take it over. It then lasts
// like a stream, whatever was asked for.
func (w *recordingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.response.code = http.StatusSwitchingProtocols
	return http.NewResponseController(httpserver.LimitUnread(w.response.w, unreadPatience)).Hijack()
}
