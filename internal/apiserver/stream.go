package apiserver

import (
	"bytes"
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
	// send sends whole frames at once.
	send(frames []byte) error
	// single says that every send must be one frame.
	single() bool
	close()
}

// openStream answers that a watch begins, over HTTP or a WebSocket.
func (q operation) openStream(media codec.Media) (eventStream, error) {
	if isWebSocket(q.http) {
		return q.openWebSocket(media)
	}
	header := q.w.Header()
	header.Set("Content-Type", codec.StreamType(media))
	q.warnings.write(header)
	q.code = http.StatusOK
	q.w.WriteHeader(q.code)
	s := &httpStream{w: q.w, control: http.NewResponseController(q.w), wire: http.NewResponseController(q.wire), size: &q.size}
	s.guard = time.AfterFunc(streamPatience, s.check)
	if err := s.send(nil); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// streamPatience is how long a client may take to read what is sent at once.
const streamPatience = 30 * time.Second

// httpStream cuts off a client that does not read. Its own timer looks after
// that, for a deadline of each sending would cost more than the sending.
type httpStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	wire    *http.ResponseController
	size    *int
	sending atomic.Int64 // since when, in nanoseconds; 0 is not
	guard   *time.Timer

	mu    sync.Mutex // guards the following
	ended bool       // and with it wire, which nobody may use after the request
}

func (s *httpStream) send(frames []byte) error {
	s.sending.Store(time.Now().UnixNano())
	defer s.sending.Store(0)
	*s.size += len(frames)
	if _, err := s.w.Write(frames); err != nil {
		return err
	}
	return s.control.Flush()
}

// check ends a sending that lasts too long.
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

func (q operation) openWebSocket(media codec.Media) (eventStream, error) {
	upgrader := websocket.Upgrader{
		CheckOrigin:  func(*http.Request) bool { return true },
		Subprotocols: websocket.Subprotocols(q.http),
		Error:        func(http.ResponseWriter, *http.Request, int, error) {},
	}
	conn, err := upgrader.Upgrade(q.w, q.http, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest("unable to open a WebSocket: " + err.Error())
	}
	q.code = http.StatusSwitchingProtocols
	s := &webSocketStream{conn: conn, media: media, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(q.Context)
	q.Context = ctx
	go func() {
		defer close(s.done)
		defer cancel()
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	return s, nil
}

// webSocketStream sends each frame as a message. What the client sends is
// read and dropped, so that its closing is noticed.
type webSocketStream struct {
	conn  *websocket.Conn
	media codec.Media
	done  chan struct{} // closed when nothing is read any more
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
