package apiserver_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/apiserver"
	"github.com/coracle-io/coracle/internal/apiserver/apiservertest"
	"github.com/coracle-io/coracle/internal/feature"
)

// seen is a watch event in short: "ADDED a".
type seen struct {
	Type   string
	Object struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Code     int
		Reason   string
	}
}

// watching reads the events of one watch.
type watching struct {
	t    *testing.T
	body io.ReadCloser
	scan *bufio.Scanner
}

func watch(t *testing.T, s *apiservertest.Server, query string, headers ...string) *watching {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+mapsPath+"?watch=true&"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(response.Body)
		t.Fatalf("%d %s", response.StatusCode, data)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &watching{t: t, body: response.Body, scan: bufio.NewScanner(response.Body)}
}

// next returns the next event; ok is false when the watch has ended.
func (w *watching) next() (e seen, ok bool) {
	w.t.Helper()
	if !w.scan.Scan() {
		return e, false
	}
	if err := json.Unmarshal(w.scan.Bytes(), &e); err != nil {
		w.t.Fatalf("%v: %s", err, w.scan.Bytes())
	}
	return e, true
}

func (w *watching) expect(want ...string) {
	w.t.Helper()
	for _, text := range want {
		e, ok := w.next()
		if got := strings.TrimSpace(e.Type + " " + e.Object.Metadata.Name); !ok || got != text {
			w.t.Fatalf("got %q, want %q", got, text)
		}
	}
}

func TestWatch(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, mapsPath, configMap("a", `,"labels":{"app":"web"}}`))
	list, _ := listMaps(t, s, "")
	from := watch(t, s, "resourceVersion="+list.ResourceVersion)
	initial := watch(t, s, "")
	zero := watch(t, s, "resourceVersion=0")
	web := watch(t, s, "labelSelector=app%3Dweb&resourceVersion="+list.ResourceVersion)
	named := watch(t, s, "fieldSelector=metadata.name%3Db")
	initial.expect("ADDED a")
	zero.expect("ADDED a")

	mustCreate(t, s, mapsPath, configMap("b", "}"))
	relabel := func(name, labels string) {
		t.Helper()
		if code, body, _ := call(t, s, "PATCH", mapsPath+"/"+name, `{"metadata":{"labels":`+labels+`}}`, "Content-Type", "application/merge-patch+json"); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	relabel("b", `{"app":"web"}`)
	relabel("b", `{"more":"x"}`)
	relabel("b", `{"app":"other"}`)
	call(t, s, "DELETE", mapsPath+"/a", "")
	call(t, s, "DELETE", mapsPath+"/b", "")

	all := []string{"ADDED b", "MODIFIED b", "MODIFIED b", "MODIFIED b", "DELETED a", "DELETED b"}
	from.expect(all...)
	initial.expect(all...)
	zero.expect(all...)
	named.expect("ADDED b", "MODIFIED b", "MODIFIED b", "MODIFIED b", "DELETED b")
	web.expect("ADDED b", "MODIFIED b")
	left, _ := web.next()
	if left.Type != "DELETED" || left.Object.Metadata.Name != "b" || left.Object.Metadata.Labels["app"] != "web" {
		t.Fatalf("an object that leaves the selection: %+v", left)
	}
	web.expect("DELETED a")
}

// The bookmark after the initial events carries the annotation that says so.
func TestWatchList(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	w := watch(t, s, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	w.expect("ADDED a")
	mark, _ := w.next()
	if mark.Type != "BOOKMARK" || mark.Object.Kind != "ConfigMap" || mark.Object.Metadata.Annotations["k8s.io/initial-events-end"] != "true" || mark.Object.Metadata.ResourceVersion == "" {
		t.Fatalf("%+v", mark)
	}
	mustCreate(t, s, mapsPath, configMap("b", "}"))
	w.expect("ADDED b")
	none := watch(t, s, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0")
	mustCreate(t, s, mapsPath, configMap("c", "}"))
	none.expect("ADDED c")
}

// Without WatchList, a watch cannot ask for initial events, and begins with them as it did
// before.
func TestWatchListIsOff(t *testing.T) {
	off, err := feature.Parse([]string{"WatchList=false", "WatchListCompression=false"})
	if err != nil {
		t.Fatal(err)
	}
	s := apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Features = off })
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	watch(t, s, "allowWatchBookmarks=true").expect("ADDED a")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, mapsPath+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Large answers are compressed for clients on other machines, unless that is off.
func TestAnswersAreCompressed(t *testing.T) {
	for gates, want := range map[string]string{"": "gzip", "APIResponseCompression=false": ""} {
		features, err := feature.Parse([]string{gates})
		if err != nil {
			t.Fatal(err)
		}
		s := apiservertest.Start(t, func(c *apiserver.Config) { c.Registry.Features = features })
		mustCreate(t, s, mapsPath, configMap("a", `}, "data": {"a": "`+strings.Repeat("a", 200<<10)+`"}`))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, mapsPath+"/a", nil)
		r.RemoteAddr = "192.0.2.1:7777"
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); w.Code != http.StatusOK || got != want {
			t.Errorf("%q: %d, with the encoding %q, want %q", gates, w.Code, got, want)
		}
	}
}

// TestWatchListsAreCompressed checks that a watch that begins with a list is
// compressed for a client on another machine, which can read each event when it is
// sent, and that others are not.
func TestWatchListsAreCompressed(t *testing.T) {
	const list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	s := apiservertest.Start(t)
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "192.0.2.1:7777"
		s.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(far.Close)
	open := func(query string) (http.Header, io.ReadCloser) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, far.URL+mapsPath+"?watch=true&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept-Encoding", "gzip") // by hand, so that the client does not decompress
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.Header, response.Body
	}
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	h, listed := open(list)
	if h.Get("Content-Encoding") != "gzip" || h.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("the watch has the headers %v", h)
	}
	plain, err := gzip.NewReader(listed)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t: t, body: listed, scan: bufio.NewScanner(plain)}
	w.expect("ADDED a")
	if mark, _ := w.next(); mark.Type != "BOOKMARK" {
		t.Fatalf("%+v", mark)
	}
	for _, name := range []string{"b", "c"} {
		mustCreate(t, s, mapsPath, configMap(name, "}"))
		w.expect("ADDED " + name)
	}
	if h, _ := open("resourceVersion=0"); h.Get("Content-Encoding") != "" {
		t.Errorf("a watch without a list has the headers %v", h)
	}
	near := watch(t, s, list, "Accept-Encoding", "gzip")
	near.expect("ADDED a", "ADDED b", "ADDED c")
}

// reader is a client that calls atMark before it reads the mark after the initial events.
type reader struct {
	*httptest.ResponseRecorder
	atMark func()
}

func (r reader) Write(frames []byte) (int, error) {
	if bytes.Contains(frames, []byte(metav1.InitialEventsAnnotationKey)) {
		r.atMark()
	}
	return r.ResponseRecorder.Write(frames)
}

// chunks is a client that keeps what each write sends.
type chunks struct {
	*httptest.ResponseRecorder
	sent [][]byte
}

func (c *chunks) Write(data []byte) (int, error) {
	if len(data) > 0 {
		c.sent = append(c.sent, bytes.Clone(data))
	}
	return c.ResponseRecorder.Write(data)
}

// TestCompressedEventsAreOneWrite checks that nothing is compressed while the client of
// a watch reads: each write is a whole gzip member.
func TestCompressedEventsAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiservertest.StartInProcess(t)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, mapsPath+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		client := &chunks{ResponseRecorder: httptest.NewRecorder()}
		s.Handler().ServeHTTP(client, r)
		var all []byte
		for i, chunk := range client.sent {
			member, err := gzip.NewReader(bytes.NewReader(chunk))
			if err != nil {
				t.Fatalf("write %d of %d: %v", i, len(client.sent), err)
			}
			plain, err := io.ReadAll(member)
			if err != nil {
				t.Errorf("write %d of %d: %v", i, len(client.sent), err)
			}
			all = append(all, plain...)
		}
		if !bytes.Contains(all, []byte(metav1.InitialEventsAnnotationKey)) {
			t.Errorf("the client reads %q", all)
		}
	})
}

// The duration of a watch list ends when its last event is sent, not when it is ready.
func TestWatchListIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiservertest.StartInProcess(t)
		get := func(w http.ResponseWriter, path string) {
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		}
		slow := reader{httptest.NewRecorder(), func() { time.Sleep(2 * time.Second) }}
		get(slow, mapsPath+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=5")
		page := httptest.NewRecorder()
		get(page, "/metrics")
		const labels = `{group="",resource="configmaps",scope="namespace",version="v1"} `
		for _, line := range []string{`apiserver_watch_list_duration_seconds_count` + labels + "1", `apiserver_watch_list_duration_seconds_sum` + labels + "2"} {
			if !strings.Contains(page.Body.String(), "\n"+line) {
				t.Errorf("missing: %s", line)
			}
		}
	})
}

// The end of the initial events is marked in every form in which they can be had.
func TestWatchListForms(t *testing.T) {
	s := startCBOR(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf;stream=watch", "application/cbor-seq",
		"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	} {
		w := watch(t, s, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=180", "Accept", accept)
		text := ""
		for more := make([]byte, 1<<10); !strings.Contains(text, metav1.InitialEventsAnnotationKey); {
			n, err := w.body.Read(more)
			text += string(more[:n])
			if err != nil {
				t.Fatalf("%s: %v after %q", accept, err, text)
			}
		}
		added, mark, end := strings.Index(text, "ADDED"), strings.Index(text, "BOOKMARK"), strings.Index(text, metav1.InitialEventsAnnotationKey)
		if added < 0 || mark < added || end < mark || strings.Count(text, "ADDED") != 1 {
			t.Errorf("%s: %q", accept, text)
		}
	}
}

// A timeout ends the watch, with a last bookmark if the revision has moved.
func TestWatchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiservertest.StartInProcess(t)
		send := func(method, path, body string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			s.Handler().ServeHTTP(w, r)
			return w
		}
		send(http.MethodPost, mapsPath, configMap("a", "}"))
		watched := make(chan *httptest.ResponseRecorder)
		go func() {
			watched <- send(http.MethodGet, mapsPath+"?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&fieldSelector=metadata.name%3Da", "")
		}()
		synctest.Wait() // the first events are sent
		var made struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(send(http.MethodPost, mapsPath, configMap("b", "}")).Body.Bytes(), &made); err != nil {
			t.Fatal(err)
		}
		w := &watching{t: t, scan: bufio.NewScanner((<-watched).Body)}
		w.expect("ADDED a", "BOOKMARK")
		last, _ := w.next()
		if last.Type != "BOOKMARK" || last.Object.Metadata.ResourceVersion != made.Metadata.ResourceVersion || made.Metadata.ResourceVersion == "" {
			t.Fatalf("%+v", last)
		}
		if e, ok := w.next(); ok {
			t.Fatalf("%+v after the timeout", e)
		}
	})
}

// A watch without a timeout ends within twice the least time, and with a least
// time of 0 not by itself.
func TestMinRequestTimeout(t *testing.T) {
	for least, want := range map[int]bool{0: false, 1800: true} {
		synctest.Test(t, func(t *testing.T) {
			s := apiservertest.StartInProcess(t, func(c *apiserver.Config) { c.Limits.MinRequestTimeout = least })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, mapsPath+"?watch=true", nil))
			}()
			time.Sleep(time.Hour + time.Second)
			synctest.Wait()
			select {
			case <-ended:
				if !want {
					t.Errorf("with a least time of %d s the watch ended", least)
				}
			default:
				if want {
					t.Errorf("with a least time of %d s the watch has not ended", least)
				}
			}
			cancel()
			<-ended
		})
	}
}

func TestWatchTable(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	w := watch(t, s, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	for i, name := range []string{"a", "b"} {
		if i > 0 {
			mustCreate(t, s, mapsPath, configMap(name, "}"))
		}
		w.scan.Scan()
		var e struct {
			Type   string
			Object metav1.Table
		}
		if err := json.Unmarshal(w.scan.Bytes(), &e); err != nil || e.Type != "ADDED" || len(e.Object.Rows) != 1 || e.Object.Rows[0].Cells[0] != name {
			t.Fatalf("%v %s", err, w.scan.Bytes())
		}
		if headers := len(e.Object.ColumnDefinitions) > 0; headers != (i == 0) {
			t.Errorf("columns in event %d: %v", i, headers)
		}
	}
}

func TestWebSocketWatch(t *testing.T) {
	s := apiservertest.Start(t)
	mustCreate(t, s, mapsPath, configMap("a", "}"))
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+mapsPath+"?watch=true", nil) //nolint:bodyclose // the connection took it over
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for i, name := range []string{"a", "b"} {
		if i > 0 {
			mustCreate(t, s, mapsPath, configMap(name, "}"))
		}
		_, data, err := conn.ReadMessage()
		var e seen
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err != nil || e.Type != "ADDED" || e.Object.Metadata.Name != name {
			t.Fatalf("%v %s", err, data)
		}
	}
}
