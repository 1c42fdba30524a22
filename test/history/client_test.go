package history

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// api sends requests to one API server. It never retries, so that each write is
// sent once.
type api struct {
	url  string
	http *http.Client
}

// answerTimeout limits an operation. The outcome of a longer one is unknown, and
// each unknown outcome makes the check of a history harder.
const answerTimeout = 30 * time.Second

func newAPI(server string) *api {
	return &api{url: server + "/api/v1/namespaces/history/configmaps", http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
}

// unknown is the outcome of an operation without an answer, or with a server
// error.
const unknown = 0

// call sends a request and returns the status code, or unknown.
func (a *api) call(method, path string, body, into any) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(data))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(request)
	if err != nil {
		return unknown
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
		return unknown
	}
	if response.StatusCode < http.StatusMultipleChoices {
		if err := json.NewDecoder(response.Body).Decode(into); err != nil {
			return unknown
		}
	}
	return response.StatusCode
}

func configMap(key, value string, revision int64) *corev1.ConfigMap {
	c := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: key},
		Data:       map[string]string{"value": value},
	}
	if revision > 0 {
		c.ResourceVersion = strconv.FormatInt(revision, 10)
	}
	return c
}

func (a *api) create(key, value string) (revision int64, code int) {
	var made corev1.ConfigMap
	code = a.call("POST", "", configMap(key, value, 0), &made)
	return revisionOf(&made), code
}

func (a *api) update(key, value string, revision int64) (int64, int) {
	var made corev1.ConfigMap
	code := a.call("PUT", "/"+key, configMap(key, value, revision), &made)
	return revisionOf(&made), code
}

func (a *api) delete(key string, revision int64) int {
	text := strconv.FormatInt(revision, 10)
	return a.call("DELETE", "/"+key, metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{ResourceVersion: &text},
	}, &metav1.Status{})
}

func (a *api) get(key string) (item, int) {
	var c corev1.ConfigMap
	code := a.call("GET", "/"+key, nil, &c)
	return itemOf(&c), code
}

// list makes a consistent list in pages of limit items (0 means one page).
func (a *api) list(limit int) (items map[string]item, revision int64, code int) {
	items = map[string]item{}
	for next := ""; ; {
		var page corev1.ConfigMapList
		code = a.call("GET", fmt.Sprintf("?limit=%d&continue=%s", limit, url.QueryEscape(next)), nil, &page)
		if code != http.StatusOK {
			return nil, 0, code
		}
		for i := range page.Items {
			items[page.Items[i].Name] = itemOf(&page.Items[i])
		}
		revision, _ = strconv.ParseInt(page.ResourceVersion, 10, 64)
		if next = page.Continue; next == "" {
			return items, revision, code
		}
	}
}

// item is an object in the history.
type item struct {
	value    string
	revision int64
}

func itemOf(c *corev1.ConfigMap) item { return item{c.Data["value"], revisionOf(c)} }

func revisionOf(c *corev1.ConfigMap) int64 {
	n, _ := strconv.ParseInt(c.ResourceVersion, 10, 64)
	return n
}

// watchEvent is an event of a watch.
type watchEvent struct {
	verb     string
	key      string
	value    string
	revision int64
}

// watch calls visit for the events after a revision until visit returns false, the
// connection ends, or the server answers 410 Gone (expired is true).
func (a *api) watch(ctx context.Context, after int64, visit func(watchEvent) bool) (expired bool) {
	request, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s?watch=1&resourceVersion=%d", a.url, after), nil)
	if err != nil {
		panic(err)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return response.StatusCode == http.StatusGone
	}
	for decoder := json.NewDecoder(response.Body); ; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := decoder.Decode(&e); err != nil {
			return false
		}
		if e.Type == "ERROR" {
			var status metav1.Status
			return json.Unmarshal(e.Object, &status) == nil && status.Code == http.StatusGone
		}
		var c corev1.ConfigMap
		if err := json.Unmarshal(e.Object, &c); err != nil {
			return false
		}
		if !visit(watchEvent{e.Type, c.Name, c.Data["value"], revisionOf(&c)}) {
			return false
		}
	}
}
