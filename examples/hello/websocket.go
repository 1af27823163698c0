package main

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
)

// webSocket sends every message back until the other side, or the app, ends it.
func (a *app) webSocket(w http.ResponseWriter, r *http.Request) {
	a.upgraded.Add(1)
	defer a.upgraded.Done()
	// Pages of any origin may try the example.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	goodbye := context.AfterFunc(a.streams, func() {
		_ = conn.Close(websocket.StatusGoingAway, "the app stops")
	})
	defer goodbye()
	for {
		kind, message, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		if err := conn.Write(context.Background(), kind, message); err != nil {
			return
		}
	}
}
