package apiserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coracle-io/coracle/internal/apiserver/codec"
)

// eventStream carries the frames of a watch to the client.
type eventStream interface {
	// send sends complete frames and flushes them.
	send(frames []byte) error
	// single reports whether each send must be exactly one frame.
	single() bool
	close()
}

// openStream begins the answer of a watch, over HTTP or a WebSocket. Over HTTP it
// is compressed if compress is set and the client takes that. The returned context
// ends with ctx, or when the client closes the WebSocket.
func (a *response) openStream(ctx context.Context, r *http.Request, media codec.Media, compress bool) (eventStream, context.Context, error) {
	if isWebSocket(r) {
		return a.openWebSocket(ctx, r, media)
	}
	header := a.w.Header()
	header.Set("Content-Type", codec.StreamType(media))
	if compress = compress && a.takesGzip(); compress {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
	}
	a.warnings.write(header)
	a.code = http.StatusOK
	a.w.WriteHeader(a.code)
	s := &httpStream{w: a.w, control: http.NewResponseController(a.w), wire: http.NewResponseController(a.wire), size: &a.size, compressed: compress}
	s.guard = time.AfterFunc(streamPatience, s.check)
	if err := s.send(nil); err != nil {
		s.close()
		return nil, nil, err
	}
	return s, ctx, nil
}

// streamPatience is how long a client may take to read one write.
const streamPatience = 30 * time.Second

// httpStream disconnects a client that does not read. It uses a timer of its
// own, because a write deadline for each send would cost more than the send.
type httpStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	wire    *http.ResponseController
	size    *int
	sending atomic.Int64 // start of the current send in Unix nanoseconds; 0 if none
	guard   *time.Timer
	// compressed says that each send is a gzip member of its own, so that a stream
	// holds no compressor between two sends.
	compressed bool

	mu    sync.Mutex // guards ended, and uses of wire
	ended bool       // the request has ended; wire must not be used any more
}

func (s *httpStream) send(frames []byte) error {
	s.sending.Store(time.Now().UnixNano())
	defer s.sending.Store(0)
	*s.size += len(frames)
	if err := s.write(frames); err != nil {
		return err
	}
	return s.control.Flush()
}

// write writes frames, compressed if the stream is, at once: a client that does not
// read holds no compressor, which takes more memory than most frames.
func (s *httpStream) write(frames []byte) error {
	if s.compressed && len(frames) > 0 {
		frames = compressed(frames)
	}
	_, err := s.w.Write(frames)
	return err
}

// compressed returns frames as a gzip member. They can be read at once: readers of
// gzip keep the last block of a member until the next one begins, so an empty block
// follows the frames.
func compressed(frames []byte) []byte {
	var member bytes.Buffer // whose Write has no errors
	w := compressors.Get().(*gzip.Writer)
	w.Reset(&member)
	_, _ = w.Write(frames)
	_ = w.Flush()
	_ = w.Close()
	w.Reset(nil) // the pool holds no frames
	compressors.Put(w)
	return member.Bytes()
}

// check aborts a send that takes longer than streamPatience.
func (s *httpStream) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch since := s.sending.Load(); {
	case s.ended:
		return
	case since != 0 && time.Since(time.Unix(0, since)) >= streamPatience:
		_ = s.wire.SetWriteDeadline(time.Unix(1, 0))
		return
	}
	s.guard.Reset(streamPatience)
}

func (s *httpStream) single() bool { return false }

func (s *httpStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.guard.Stop()
}

func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

const webSocketWriteTimeout = 30 * time.Second

func (a *response) openWebSocket(ctx context.Context, r *http.Request, media codec.Media) (eventStream, context.Context, error) {
	upgrader := websocket.Upgrader{
		CheckOrigin:  func(*http.Request) bool { return true },
		Subprotocols: websocket.Subprotocols(r),
		Error:        func(http.ResponseWriter, *http.Request, int, error) {},
	}
	conn, err := upgrader.Upgrade(a.w, r, nil)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest("unable to open a WebSocket: " + err.Error())
	}
	a.code = http.StatusSwitchingProtocols
	s := &webSocketStream{conn: conn, media: media, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		defer cancel()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	return s, ctx, nil
}

// webSocketStream sends each frame as a message. It reads and drops messages of
// the client to notice when it closes the connection.
type webSocketStream struct {
	conn  *websocket.Conn
	media codec.Media
	done  chan struct{} // closed when the reading goroutine has ended
}

func (s *webSocketStream) send(frame []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(webSocketWriteTimeout)); err != nil {
		return err
	}
	switch s.media {
	case codec.Protobuf:
		return s.conn.WriteMessage(websocket.BinaryMessage, frame[codec.FrameHeader:])
	case codec.CBOR:
		return s.conn.WriteMessage(websocket.BinaryMessage, frame)
	}
	return s.conn.WriteMessage(websocket.TextMessage, bytes.TrimSuffix(frame, []byte("\n")))
}

func (s *webSocketStream) single() bool { return true }

func (s *webSocketStream) close() {
	message := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = s.conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second))
	_ = s.conn.Close()
	<-s.done
}
