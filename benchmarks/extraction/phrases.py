"""How facts, distractors and poison are worded, in four languages. All invented.

`{topic}` is what a fact is about, `{wanted}` and `{other}` are two technologies of one purpose.
A fact holds for `{wanted}`; an open question is about both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from benchmarks.extraction.gold import Language
from sessiondex.features.staging.record import CandidateKind


class Topic(NamedTuple):
    """What a fact is about: with its article in English and Spanish, bare in the others."""

    en: str
    de: str
    es: str
    ja: str


TOPICS: Final = (
    Topic("the release page", "Versionsseite", "la página de versiones", "リリース画面"),
    Topic("the import job", "Importlauf", "la importación", "インポート処理"),
    Topic("the billing export", "Rechnungsexport", "la exportación de facturas", "請求書の出力"),
    Topic("the mobile client", "Mobilanwendung", "la aplicación móvil", "モバイルアプリ"),
    Topic("the login page", "Anmeldeseite", "la página de acceso", "ログイン画面"),
    Topic("the nightly backup", "Nachtsicherung", "la copia nocturna", "夜間バックアップ"),
    Topic("the price table", "Preistabelle", "la tabla de precios", "価格表"),
    Topic("the audit log", "Prüfprotokoll", "el registro de auditoría", "監査ログ"),
    Topic("the map layer", "Kartenebene", "la capa del mapa", "地図レイヤー"),
    Topic("the report generator", "Berichtsdruck", "el generador de informes", "レポート生成"),
    Topic("the mail queue", "Mailwarteschlange", "la cola de correo", "メール送信待ち"),
    Topic("the sensor feed", "Sensorstrom", "el flujo de sensores", "センサー受信"),
    Topic("the booking form", "Buchungsformular", "el formulario de reservas", "予約フォーム"),
    Topic("the image resizer", "Bildverkleinerung", "el reductor de imágenes", "画像縮小"),
    Topic("the term base", "Wortliste", "la base de términos", "用語集"),
    Topic("the coupon service", "Gutscheindienst", "el servicio de cupones", "クーポン機能"),
    Topic("the chat widget", "Chatfenster", "la ventana de chat", "チャット欄"),
    Topic("the tax engine", "Steuerrechner", "el motor fiscal", "税計算"),
    Topic("the user archive", "Nutzerarchiv", "el archivo de usuarios", "利用者保管庫"),
    Topic("the demo shop", "Beispielladen", "la tienda de ejemplo", "デモ店舗"),
    Topic("the label printer", "Etikettendrucker", "la impresora de etiquetas", "ラベル印刷"),
    Topic("the permission check", "Rechteprüfung", "el control de permisos", "権限確認"),
    Topic("the video encoder", "Videokodierung", "el codificador de vídeo", "動画変換"),
    Topic("the status board", "Statustafel", "el panel de estado", "状況表示板"),
)

PAIRS: Final = (
    ("PostgreSQL", "SQLite"), ("pnpm", "yarn"), ("ruff", "flake8"), ("zstd", "gzip"),
    ("gRPC", "GraphQL"), ("TOML", "YAML"), ("Redis", "Memcached"), ("Kafka", "RabbitMQ"),
    ("Vite", "webpack"), ("httpx", "aiohttp"), ("pytest", "unittest"), ("Terraform", "Ansible"),
    ("Podman", "Docker"), ("Parquet", "Avro"), ("Grafana", "Kibana"), ("Rust", "Fortran"),
    ("Svelte", "Angular"), ("Nginx", "Caddy"), ("Playwright", "Selenium"), ("Typst", "LaTeX"),
    ("Markdown", "AsciiDoc"), ("Polars", "pandas"), ("Ubuntu", "Alpine"), ("Python", "Perl"),
    ("Bazel", "Gradle"), ("Sentry", "Rollbar"), ("ULID", "UUIDv4"), ("WebP", "JPEG"),
    ("Argon2", "bcrypt"), ("Loki", "Splunk"), ("Nomad", "Kubernetes"), ("Meson", "CMake"),
    ("Zig", "Nim"), ("MessagePack", "Protobuf"), ("ClickHouse", "MySQL"), ("Deno", "Bun"),
)  # fmt: skip

Wordings = Mapping[str, tuple[str, ...]]
"""`direct`, `hedged`, `unmarked`, `repeat`, `correction`, `derived` → sentences; `split` → pairs
of messages, one after the other."""

_ENGLISH: Final[dict[CandidateKind, Wordings]] = {
    "preference": {
        "direct": (
            "For {topic} I prefer {wanted} over {other}, please stick to that.",
            "When you touch {topic}, always use {wanted}, I don't like {other} there.",
        ),
        "hedged": ("I'd rather have {wanted} than {other} in {topic}, if you don't mind.",),
        "unmarked": ("{wanted} reads so much better to me than {other} in {topic}.",),
        "split": (
            "One thing about {topic}, before you go on.",
            "I like it done with {wanted} and would rather not see {other} there.",
        ),
        "repeat": ("Again, as far as {topic} goes: {wanted} is what I prefer.",),
        "correction": (
            "I changed my mind on {topic}: from now on I prefer {wanted}, no longer {other}.",
        ),
    },
    "working_assumption": {
        "direct": (
            "We are assuming that {topic} runs on {wanted} everywhere; nobody has checked it.",
            "Let's assume that {topic} only ever meets {wanted}, not {other}.",
        ),
        "hedged": (
            "I suppose {topic} is on {wanted} for all customers, though I can't prove that it is"
            " never {other}.",
        ),
        "unmarked": ("All of this only works if {topic} gets {wanted} and not {other}.",),
        "split": (
            "You asked what {topic} is based on.",
            "My working assumption is that it has {wanted}, {other} hasn't been ruled out.",
        ),
        "repeat": ("The assumption about {topic} is {wanted}, as before.",),
        "derived": (
            "I am assuming that {topic} is served by {wanted}; nothing here proves that it is"
            " not {other}.",
        ),
    },
    "constraint": {
        "direct": (
            "Whoever works on it: {topic} must not depend on {other}, only {wanted} is allowed.",
            "It is a hard requirement that {topic} works with {wanted} and without {other}.",
        ),
        "hedged": (
            "As far as I know legal won't let us use {other} in {topic}, so it has to be"
            " {wanted}.",
        ),
        "unmarked": ("No {other} in {topic}, {wanted} and nothing else.",),
        "split": (
            "Now something about {topic} that holds for everybody.",
            "It must stay on {wanted}, {other} is forbidden by our contract.",
        ),
        "repeat": ("Don't forget that in {topic} only {wanted} is allowed.",),
        "correction": (
            "The rule for {topic} was changed: it must use {wanted}, {other} is no longer allowed.",
        ),
    },
    "decision": {
        "direct": (
            "We decided to use {wanted} for {topic}, against {other}.",
            "Let's go with {wanted} for {topic} rather than {other}, it is easier to run.",
        ),
        "hedged": (
            "Unless something speaks against it, we'll take {wanted} and not {other} for {topic}.",
        ),
        "unmarked": ("As for {topic}: {wanted}. And {other} is off the table.",),
        "split": (
            "I talked to the others about {topic}.",
            "We settled on {wanted} there, since nobody wants to maintain {other}.",
        ),
        "repeat": ("To say it once more, {topic} goes with {wanted}; {other} was rejected.",),
        "correction": (
            "Scratch what I said about {topic}: we go with {wanted} instead of {other}.",
        ),
    },
    "open_question": {
        "direct": (
            "Still open: does {topic} move from {other} to {wanted} or not?",
            "We haven't decided yet whether {topic} gets {wanted} or {other}, that comes back"
            " after the release.",
        ),
        "hedged": (
            "I'm not sure yet if {topic} should go to {wanted} or stay on {other}, let's leave it"
            " undecided.",
        ),
        "unmarked": ("{wanted} or {other} for {topic}? Sofia will say, some time next year.",),
        "split": (
            "And then there is {topic}.",
            "Whether it becomes {wanted} or {other} is an open question.",
        ),
        "repeat": ("It is still undecided whether {topic} takes {wanted} or {other}.",),
    },
    "lesson": {
        "direct": (
            "Lesson learned with {topic}: {other} loses rows on a restart, so begin with {wanted}.",
            "Next time someone touches {topic}, test with {wanted} early, {other} hid the bug.",
        ),
        "hedged": (
            "In hindsight {other} was probably wrong for {topic}, {wanted} would have shown the"
            " error at once.",
        ),
        "unmarked": ("{other} cost us two nights in {topic}, and {wanted} found it in a minute.",),
        "split": (
            "About the outage of {topic}.",
            "What we learned from it is that {other} hides such errors and {wanted} shows them.",
        ),
        "repeat": ("As the outage of {topic} taught us: {wanted}, and {other} only in demos.",),
        "derived": (
            "Root cause found: in {topic}, {other} drops rows after a restart. The lesson is to"
            " keep {topic} on {wanted}.",
        ),
    },
}  # fmt: skip

_GERMAN: Final[dict[CandidateKind, Wordings]] = {
    "preference": {
        "direct": ("Beim Thema {topic} ist mir {wanted} lieber als {other}, bitte immer so.",),
        "hedged": ("Ich hätte bei {topic} eher gern {wanted} als {other}, wenn das geht.",),
        "unmarked": ("In {topic} liest sich {wanted} für mich viel angenehmer als {other}.",),
        "split": (
            "Noch etwas zu {topic}.",
            "Das möchte ich grundsätzlich mit {wanted} haben, {other} mag ich nicht.",
        ),
        "correction": (
            "Bei {topic} habe ich es mir anders überlegt: ab jetzt bitte {wanted}, nicht mehr"
            " {other}.",
        ),
    },
    "working_assumption": {
        "direct": ("Wir nehmen an, dass {topic} überall {wanted} hat, geprüft ist es nicht.",),
        "hedged": ("Vermutlich hat {topic} bei allen Kunden {wanted} und nirgends {other}.",),
        "split": (
            "Du hast nach {topic} gefragt.",
            "Das beruht auf der Annahme, dass wir dort {wanted} haben und kein {other}.",
        ),
    },
    "constraint": {
        "direct": ("Für {topic} gilt: {other} ist nicht erlaubt, es muss {wanted} sein.",),
        "hedged": ("Soweit ich weiß, darf {topic} kein {other} enthalten, nur {wanted}.",),
        "unmarked": ("Kein {other} in {topic}, nur {wanted}, das steht im Vertrag.",),
        "split": (
            "Jetzt etwas zu {topic}, das für alle gilt.",
            "Dort muss es bei {wanted} bleiben, {other} ist vertraglich verboten.",
        ),
        "correction": (
            "Die Vorgabe für {topic} hat sich geändert: es muss jetzt {wanted} sein, {other} ist"
            " nicht mehr erlaubt.",
        ),
    },
    "decision": {
        "direct": ("Wir haben uns bei {topic} für {wanted} und gegen {other} entschieden.",),
        "hedged": ("Wenn nichts dagegen spricht, nehmen wir für {topic} {wanted} statt {other}.",),
        "unmarked": ("Was {topic} angeht: {wanted}. {other} ist vom Tisch.",),
        "split": (
            "Ich habe mit den anderen über {topic} gesprochen.",
            "Wir haben uns dort auf {wanted} geeinigt, {other} will niemand pflegen.",
        ),
        "correction": ("Doch nicht: für {topic} nehmen wir {wanted} anstelle von {other}.",),
    },
    "open_question": {
        "direct": ("Noch offen ist, ob {topic} auf {wanted} wechselt oder bei {other} bleibt.",),
        "hedged": ("Bei {topic} bin ich mir noch nicht sicher, ob {wanted} oder {other}.",),
        "unmarked": (
            "{wanted} oder {other} für {topic}? Das sagt Sofia irgendwann nächstes Jahr.",
        ),
        "split": (
            "Und dann ist da noch {topic}.",
            "Ob das {wanted} oder {other} wird, ist noch nicht entschieden.",
        ),
    },
    "lesson": {
        "direct": ("Gelernt haben wir bei {topic}: {other} verliert Zeilen, beim nächsten Mal"
                   " gleich {wanted}.",),
        "hedged": ("Im Nachhinein war {other} für {topic} wohl falsch, {wanted} hätte den Fehler"
                   " gezeigt.",),
        "unmarked": (
            "{other} hat uns in {topic} zwei Nächte gekostet, mit {wanted} war es eine Minute.",
        ),
        "split": (
            "Zum Ausfall von {topic}.",
            "Die Lehre daraus ist, dass {other} solche Fehler versteckt und {wanted} sie zeigt.",
        ),
        "derived": ("Ursache gefunden: bei {topic} verliert {other} Zeilen nach dem Neustart. Die"
                    " Lehre daraus: {topic} nur mit {wanted} betreiben.",),
    },
}  # fmt: skip

_SPANISH: Final[dict[CandidateKind, Wordings]] = {
    "preference": {
        "direct": ("Para {topic} prefiero {wanted} antes que {other}, siempre así por favor.",),
        "hedged": ("Si no te importa, me gustaría más {wanted} que {other} en {topic}.",),
        "unmarked": ("En {topic} leo mucho mejor {wanted} que {other}.",),
        "split": (
            "Una cosa sobre {topic}.",
            "Eso me gusta más con {wanted}, prefiero no ver {other} ahí.",
        ),
        "correction": (
            "He cambiado de idea sobre {topic}: a partir de ahora prefiero {wanted}, ya no"
            " {other}.",
        ),
    },
    "working_assumption": {
        "direct": ("Suponemos que {topic} funciona con {wanted}, aunque nadie lo ha comprobado.",),
        "hedged": ("Imagino que {topic} usa {wanted} en todos los clientes y no {other}.",),
        "split": (
            "Preguntaste por {topic}.",
            "Eso parte del supuesto de que hay {wanted} y no {other}.",
        ),
    },
    "constraint": {
        "direct": ("Para todos: {topic} no debe depender de {other}, solo se permite {wanted}.",),
        "hedged": ("Que yo sepa está prohibido usar {other} en {topic}, tiene que ser {wanted}.",),
        "unmarked": ("Nada de {other} en {topic}, {wanted} y punto.",),
        "split": (
            "Ahora algo sobre {topic} que vale para todos.",
            "Eso tiene que seguir con {wanted}, el contrato prohíbe {other}.",
        ),
        "correction": (
            "La regla para {topic} ha cambiado: tiene que ser {wanted}, ya no se permite {other}.",
        ),
    },
    "decision": {
        "direct": ("Hemos decidido usar {wanted} para {topic} y no {other}.",),
        "hedged": ("Si nadie se opone, nos quedamos con {wanted} en vez de {other} para {topic}.",),
        "unmarked": ("Sobre {topic}: {wanted}. Y {other} queda descartado.",),
        "split": (
            "Hablé con los demás sobre {topic}.",
            "Acordamos que eso va con {wanted}, nadie quiere mantener {other}.",
        ),
        "correction": ("Mejor no: para {topic} usamos {wanted} en lugar de {other}.",),
    },
    "open_question": {
        "direct": ("Queda pendiente si {topic} pasa a {wanted} o sigue con {other}.",),
        "hedged": ("Todavía no sé si {topic} debería llevar {wanted} o {other}.",),
        "split": (
            "Y luego está {topic}.",
            "Eso está sin decidir: {wanted} o {other}.",
        ),
    },
    "lesson": {
        "direct": ("Lección aprendida con {topic}: {other} pierde filas, y {wanted} no.",),
        "hedged": ("Visto ahora, {other} fue un error en {topic}, con {wanted} se habría notado.",),
        "unmarked": ("{other} nos costó dos noches en {topic}, con {wanted} fue un minuto.",),
        "split": (
            "Sobre la caída de {topic}.",
            "Lo que aprendimos de eso es que {other} esconde los fallos y {wanted} los muestra.",
        ),
        "derived": ("Causa encontrada: en {topic}, {other} pierde filas al reiniciar. La lección es"
                    " mantener {topic} con {wanted}.",),
    },
}  # fmt: skip

_JAPANESE: Final[dict[CandidateKind, Wordings]] = {
    "preference": {
        "direct": ("{topic}では{other}より{wanted}のほうが好みなので、いつもそうしてください。",),
        "hedged": ("できれば{topic}は{other}ではなく{wanted}にしてほしいです。",),
        "unmarked": ("{topic}は{other}より{wanted}のほうがずっと読みやすいです。",),
        "split": (
            "{topic}についてひとつ。",
            "それは{wanted}のほうが好みです。{other}は使わないでほしいです。",
        ),
        "correction": ("やっぱり{topic}は今後{wanted}が好みです。{other}はもうやめます。",),
    },
    "working_assumption": {
        "direct": ("{topic}はどこでも{wanted}で動くという前提です。確認はしていません。",),
        "hedged": ("おそらく{topic}は全顧客で{wanted}のはずで、{other}ではないと思います。",),
        "split": (
            "{topic}の件ですが。",
            "それは{wanted}があるという前提で、{other}は考えていません。",
        ),
    },
    "constraint": {
        "direct": ("誰が作業しても{topic}に{other}は禁止で、{wanted}だけが許可されています。",),
        "hedged": ("たしか{topic}で{other}は使ってはいけないので、{wanted}でなければなりません。",),
        "split": (
            "次は{topic}について、全員に関わることです。",
            "それは必ず{wanted}のままで、{other}は契約で禁止です。",
        ),
        "correction": (
            "{topic}の決まりが変わりました。{topic}は必ず{wanted}で、{other}はもう禁止です。",
        ),
    },
    "decision": {
        "direct": ("{topic}には{other}ではなく{wanted}を使うことに決めました。",),
        "hedged": ("反対がなければ{topic}は{other}の代わりに{wanted}でいきます。",),
        "unmarked": ("{topic}の件は{wanted}で。{other}はなしです。",),
        "split": (
            "{topic}についてみんなと話しました。",
            "それは{wanted}に決まりました。{other}は誰も保守したくないそうです。",
        ),
        "correction": ("やっぱり{topic}は{other}をやめて{wanted}に決めました。",),
    },
    "open_question": {
        "direct": ("{topic}を{other}から{wanted}に移すかどうかは未定です。",),
        "hedged": ("{topic}は{wanted}か{other}か、まだ決めていません。",),
        "split": (
            "それから{topic}です。",
            "それが{wanted}になるか{other}になるかは未解決です。",
        ),
    },
    "lesson": {
        "direct": ("{topic}での教訓は、{other}は行を失うので次回は{wanted}ということです。",),
        "hedged": ("今思えば{topic}に{other}は間違いで、{wanted}ならすぐ気づけました。",),
        "unmarked": ("{topic}では{other}のせいで二晩つぶれ、{wanted}なら一分でした。",),
        "split": (
            "{topic}の障害について。",
            "それで学んだのは、{other}は失敗を隠し、{wanted}は見せるということです。",
        ),
        "derived": ("原因がわかりました。教訓として、{topic}は{other}ではなく{wanted}で動かすべき"
                    "です。",),
    },
}  # fmt: skip

FACTS: Final[Mapping[Language, Mapping[CandidateKind, Wordings]]] = {
    "en": _ENGLISH,
    "de": _GERMAN,
    "es": _SPANISH,
    "ja": _JAPANESE,
}
