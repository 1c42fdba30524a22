package extender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"
)

const (
	// An answer may be this much larger than what was asked: it can have all
	// nodes that were sent, with a message for each.
	answerBytes  = 1 << 20
	answerFactor = 4
	// maxMessage bounds a message that goes into events, conditions and logs.
	maxMessage = 256
)

// call posts arguments to a verb and decodes the answer.
func (e *extender) call(ctx context.Context, verb string, arguments, answer any) error {
	data, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	url := e.url + "/" + verb
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("failed %v with extender at URL %v, code %v", verb, url, response.StatusCode)
	}
	limit := int64(answerBytes + answerFactor*len(data))
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("the answer has more than %d bytes", limit)
	}
	if err == nil { // text after the answer is ignored, as upstream does
		if err = json.NewDecoder(bytes.NewReader(body)).Decode(answer); err != nil { // it may quote a number of any length
			err = errors.New(cut(err.Error()))
		}
	}
	if err != nil {
		return fmt.Errorf("failed %v with extender at URL %v: %w", verb, url, err)
	}
	return nil
}

// cut shortens a message of an extender.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + " ..."
}
